/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* kernel_sockets.h: the kernel's structures for sockets. Only the fields read here are declared;
 * their offsets come from the kernel's BTF. */
#pragma once
#include "core/types.h"
#include <bpf/bpf_core_read.h>

#define KERNEL __attribute__((preserve_access_index))

struct net {
	__u64 net_cookie;
} KERNEL;

typedef struct {
	struct net *net;
} KERNEL possible_net_t;

struct sock_common {
	unsigned char skc_state;
	__be16 skc_dport;
	__u16 skc_num; /* local port, in the host's order */
	unsigned short skc_family;
	unsigned char skc_ipv6only : 1;
	int skc_bound_dev_if;
	possible_net_t skc_net;
	__be32 skc_rcv_saddr;
	__u32 skc_tw_snd_nxt;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} KERNEL;

struct sock_reuseport;

struct sock {
	struct sock_common __sk_common;
	__u32 sk_ack_backlog;
	__u32 sk_max_ack_backlog;
	struct sock_reuseport *sk_reuseport_cb;
} KERNEL;

struct sock_reuseport {
	__u16 num_socks;
	struct sock *socks[];
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
	__u32 rcv_wup; /* rcv_nxt when the window was last announced */
	__u32 rcv_wnd; /* that window */
	__u64 bytes_received;
} KERNEL;

struct tcp_request_sock {
	__u32 rcv_isn;
	__u32 snt_isn;
} KERNEL;

struct inet_timewait_sock {
	struct sock_common __tw_common;
} KERNEL;

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
} KERNEL;
