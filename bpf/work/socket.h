/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* socket.h: the record of a socket: a service's connection, or a member's connection to others. */
#pragma once
#include "work/count.h"
#include "work/kernel.h"
#include <linux/in.h>

#define AF_UNIX 1
#define SOCK_STREAM 1

struct work_socket {
	__u32 counted;
	__u32 service; /* one more than its number, of a connection of a service */
	__u32 since;   /* the recount in which the connection began to owe an answer */
	__u32 reader;  /* the task that read of it last … */
	__u32 round;   /* … in this round of its own */
	__u32 asker;   /* of a connection to others: the client's that it was sent on for */
	__u8 held;     /* it has not been answered since */
	__u8 ended;    /* no task will read it */
	__u8 shared;   /* it was sent on for one while it owed an answer to another */
	__u8 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct work_socket);
} work_sockets SEC(".maps");

/* Where a service's connections are. */
struct work_place {
	__u64 netns; /* number of its file in /proc */
	struct in6_addr vip;
	__u16 port;
	__u16 zero[3];
};

/* The services with this load measure: the number of each. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, struct work_place);
	__type(value, __u32);
} work_places SEC(".maps");

/* A bit for each port, whether such a service has it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 65536 / 64);
	__type(key, __u32);
	__type(value, __u64);
} work_ports SEC(".maps");

static __always_inline bool is_work_port(__u16 port)
{
	__u32 word = port / 64;
	const __u64 *bits = bpf_map_lookup_elem(&work_ports, &word);

	return bits && *bits >> port % 64 & 1;
}

/* service_of_socket is one more than the service's number; 0: of no service. A socket of IPv4
 * has its mapped address in the field of IPv6 too (sk_rcv_saddr_set of the kernel). */
static __always_inline __u32 service_of_socket(struct sock *sk)
{
	struct work_place place = { .port = sk->__sk_common.skc_num };
	const __u32 *number;

	if (!is_work_port(place.port))
		return 0;
	place.netns = sk->__sk_common.skc_net.net->ns.inum;
	bpf_core_read(&place.vip, sizeof(place.vip), &sk->__sk_common.skc_v6_rcv_saddr);
	number = bpf_map_lookup_elem(&work_places, &place);
	return number ? *number + 1 : 0;
}

/* socket_known returns the record of a socket, or NULL: most sockets have none. */
static __always_inline struct work_socket *socket_known(struct sock *sk)
{
	if (!sk->sk_bpf_storage)
		return NULL;
	return bpf_sk_storage_get(&work_sockets, sk, NULL, 0);
}

static __always_inline struct work_socket *socket_learnt(struct sock *sk)
{
	return bpf_sk_storage_get(&work_sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}
