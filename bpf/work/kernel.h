/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* kernel.h: the kernel's structures for tasks, files and sockets. Only the fields read here
 * are declared; their offsets come from the kernel's BTF. */
#pragma once
#include "core/types.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define KERNEL __attribute__((preserve_access_index))

struct ns_common {
	unsigned int inum; /* of the namespace's file in /proc */
} KERNEL;

struct net {
	struct ns_common ns;
} KERNEL;

typedef struct {
	struct net *net;
} KERNEL possible_net_t;

struct sock_common {
	unsigned char skc_state;
	__u16 skc_num;	       /* local port, in the host's order */
	unsigned int skc_hash; /* of addresses and ports */
	unsigned short skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_rcv_saddr;
} KERNEL;

typedef struct {
	int owned; /* a task has the socket */
} KERNEL socket_lock_t;

struct bpf_local_storage;
struct socket;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	struct socket *sk_socket; /* none until it is accepted */
	__u16 sk_protocol;
	__u16 sk_type;
	__u8 sk_shutdown;
	__u32 sk_max_ack_backlog;
	struct bpf_local_storage *sk_bpf_storage;
} KERNEL;

struct socket {
	struct sock *sk;
} KERNEL;

struct inet_sock {
	struct sock sk;
} KERNEL;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} KERNEL;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 copied_seq; /* the task has read up to here */
} KERNEL;

struct unix_address;

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
	struct sock *peer;
} KERNEL;

struct sk_buff {
	unsigned int len;
	unsigned char *data;
} KERNEL;

struct inode {
	__u16 i_mode;
} KERNEL;

struct file {
	struct inode *f_inode;
	void *private_data;
} KERNEL;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} KERNEL;

struct files_struct {
	struct fdtable *fdt;
} KERNEL;

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct files_struct *files;
	struct bpf_local_storage *bpf_storage;
} KERNEL;

struct rb_node {
	unsigned long __rb_parent_color;
	struct rb_node *rb_right;
	struct rb_node *rb_left;
} KERNEL;

struct rb_root {
	struct rb_node *rb_node;
} KERNEL;

struct rb_root_cached {
	struct rb_root rb_root;
} KERNEL;

struct eventpoll {
	struct rb_root_cached rbr; /* of epitems */
} KERNEL;

struct epoll_filefd {
	struct file *file;
} KERNEL;

struct epitem {
	struct rb_node rbn;
	struct epoll_filefd ffd;
} KERNEL;

struct bpf_iter_meta;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} KERNEL;

struct bpf_iter__unix {
	struct bpf_iter_meta *meta;
	struct unix_sock *unix_sk;
} KERNEL;
