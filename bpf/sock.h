/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sock.h: the kernel's socket table, which is the truth on who owns a flow and
 * how many connections wait to be accepted. The structures are the kernel's;
 * only the fields read here are named, their offsets come from its BTF. */
#pragma once
#include <bpf/bpf_core_read.h>
#include "parse.h"
#include "siphash.h"

#define KERNEL __attribute__((preserve_access_index))

struct net {
	__u64 net_cookie;
} KERNEL;

typedef struct {
	struct net *net;
} KERNEL possible_net_t;

struct sock_common {
	unsigned char skc_state;
	__u16 skc_num; /* local port, in the host's order */
	possible_net_t skc_net;
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
	__u64 bytes_received;
} KERNEL;

struct tcp_request_sock {
	__u32 rcv_isn;
	__u32 snt_isn;
} KERNEL;

#define MAX_REUSEPORT 64 /* listeners summed in one SO_REUSEPORT group */

/* find_listener and find_owner are functions of their own, so that the verifier
 * looks at each once; hence the tests for NULL, which never is. */

/* find_socket looks t up as the kernel would for a packet from the client; the
 * caller releases what it gets. */
static __always_inline struct bpf_sock *find_socket(void *ctx, const struct tuple *t)
{
	struct bpf_sock_tuple key = {};

	__builtin_memcpy(key.ipv6.saddr, &t->client, sizeof(t->client));
	__builtin_memcpy(key.ipv6.daddr, &t->vip, sizeof(t->vip));
	key.ipv6.sport = t->client_port_be;
	key.ipv6.dport = t->vip_port_be;
	return bpf_skc_lookup_tcp(ctx, &key, sizeof(key.ipv6), BPF_F_CURRENT_NETNS, 0);
}

struct listener {
	bool found;
	bool full;   /* the kernel would drop a SYN now (sk_acceptq_is_full) */
	__u32 queue; /* connections waiting to be accepted, over the whole group */
};

/* read_listener adds up the accept queues of the listener's group. */
static __always_inline void read_listener(struct tcp_sock *tp, struct listener *l)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct sock_reuseport *group = sk->sk_reuseport_cb;
	__u32 members = 0;
	struct sock *other;

	l->found = true;
	l->queue = sk->sk_ack_backlog;
	l->full = l->queue > sk->sk_max_ack_backlog;
	if (!group)
		return;
	members = BPF_CORE_READ(group, num_socks);
	l->queue = 0;
	for (__u32 i = 0; i < MAX_REUSEPORT; i++) {
		if (i >= members)
			break;
		if (bpf_core_read(&other, sizeof(other), &group->socks[i]))
			break;
		l->queue += BPF_CORE_READ(other, sk_ack_backlog);
	}
}

/* find_listener finds who would accept a new connection of this flow. A socket
 * left in TIME_WAIT hides the listener from the flow's own tuple, so it is then
 * asked for by a tuple that nothing else can match. */
__noinline int find_listener(struct xdp_md *ctx, const struct tuple *t, struct listener *l)
{
	struct tuple nobody = {};
	struct tcp_sock *tp;
	struct bpf_sock *sk;

	if (!t || !l)
		return 0;
	*l = (struct listener){};
	sk = find_socket(ctx, t);
	if (sk && sk->state != BPF_TCP_LISTEN) {
		bpf_sk_release(sk);
		nobody.vip = t->vip;
		nobody.vip_port_be = t->vip_port_be;
		sk = find_socket(ctx, &nobody);
	}
	if (!sk)
		return 0;
	tp = sk->state == BPF_TCP_LISTEN ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	if (tp)
		read_listener(tp, l);
	bpf_sk_release(sk);
	return 0;
}

struct owner {
	bool mine;
	bool established; /* by a full socket, which expects this sequence number: */
	__u32 expects;
	__u16 generation; /* of the connection; 0 in TIME_WAIT */
};

/* find_owner tells what the kernel holds for exactly this flow. A request
 * socket counts only if the packet acknowledges its own initial number: it may
 * belong to a SYN that another server won. */
__noinline int find_owner(struct xdp_md *ctx, const struct tuple *t, __u32 ack, struct owner *o)
{
	struct tcp_request_sock *req;
	struct tcp_sock *tp;
	struct bpf_sock *sk;

	if (!t || !o)
		return 0;
	*o = (struct owner){};
	sk = find_socket(ctx, t);
	if (!sk)
		return 0;
	switch (sk->state) {
	case BPF_TCP_LISTEN:
		break;
	case BPF_TCP_TIME_WAIT:
		o->mine = true;
		break;
	case BPF_TCP_NEW_SYN_RECV:
		req = (void *)bpf_skc_to_tcp_request_sock(sk);
		if (req && req->snt_isn + 1 == ack) {
			o->mine = true;
			o->generation = generation_of(req->rcv_isn);
		}
		break;
	default:
		tp = (void *)bpf_skc_to_tcp_sock(sk);
		if (tp) {
			o->mine = o->established = true;
			o->expects = tp->rcv_nxt;
			o->generation = generation_of(tp->rcv_nxt - (__u32)tp->bytes_received - 1);
		}
	}
	bpf_sk_release(sk);
	return 0;
}
