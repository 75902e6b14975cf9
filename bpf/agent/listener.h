/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* listener.h: the socket that would accept a new connection, and how many connections wait
 * in its accept queue. */
#pragma once
#include "agent/socket.h"

#define MAX_REUSEPORT 64 /* listeners summed in one SO_REUSEPORT group */

struct listener {
	bool found;
	bool full;	  /* the kernel would drop a SYN now (sk_acceptq_is_full) */
	bool established; /* the flow itself has a full socket */
	__u32 queue;	  /* connections waiting to be accepted, over the whole group */
};

/* The sum over a SO_REUSEPORT group. */
struct group {
	struct sock_reuseport *of;
	__u32 queue;
};

/* add_queue is the callback of bpf_loop. */
static long add_queue(__u64 i, struct group *g)
{
	struct sock_reuseport *of = g->of;
	struct sock *member;

	if (bpf_core_read(&member, sizeof(member), &of->socks[i % MAX_REUSEPORT]))
		return 1;
	g->queue += BPF_CORE_READ(member, sk_ack_backlog);
	return 0;
}

/* read_listener adds up the accept queues of the listener's group. */
static __always_inline void read_listener(struct tcp_sock *tp, struct listener *l)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct sock_reuseport *of = sk->sk_reuseport_cb;
	struct group g = { .of = of };
	__u32 members;

	l->found = true;
	l->queue = sk->sk_ack_backlog;
	l->full = l->queue > sk->sk_max_ack_backlog;
	if (!of)
		return;
	members = BPF_CORE_READ(of, num_socks);
	bpf_loop(members < MAX_REUSEPORT ? members : MAX_REUSEPORT, add_queue, &g, 0);
	l->queue = g.queue;
}

static __always_inline void find_datagram_socket(struct xdp_md *ctx, const struct tuple *t,
						 const struct offering *o, struct listener *l)
{
	struct bpf_sock_tuple key;
	__u32 size = socket_key(&key, t);
	struct bpf_sock *sk = bpf_sk_lookup_udp(ctx, &key, size, namespace_of(o), 0);

	if (!sk)
		return;
	l->found = true;
	bpf_sk_release(sk);
}

/* find_listener finds the socket that would accept a new connection of this flow, or
 * receive its datagram. A socket in TIME_WAIT hides the listener from the flow's own tuple,
 * so the second lookup has a tuple that only a listener matches. A
 * function of its own, so that the verifier looks at it once; its arguments are never
 * NULL, but the verifier wants proof. */
__noinline int find_listener(struct xdp_md *ctx, const struct tuple *t, const struct offering *o,
			     struct listener *l)
{
	struct tuple wildcard = {};
	struct tcp_sock *tp;
	struct bpf_sock *sk;

	if (!t || !o || !l)
		return 0;
	*l = (struct listener){ .found = o->owner == OWNER_TABLE };
	if (l->found)
		return 0;
	if (virtual_sockets) {
		l->found = virtual_socket.listening;
		l->full = virtual_socket.full;
		l->queue = virtual_socket.queue;
		l->established = is_full_socket(virtual_socket.state);
		return 0;
	}
	if (t->protocol == IPPROTO_UDP) {
		find_datagram_socket(ctx, t, o, l);
		return 0;
	}
	sk = find_socket(ctx, t, o);
	if (sk && sk->state != BPF_TCP_LISTEN) {
		l->established = sk->state != BPF_TCP_TIME_WAIT &&
				 sk->state != BPF_TCP_NEW_SYN_RECV;
		bpf_sk_release(sk);
		wildcard.vip = t->vip;
		wildcard.vip_port_be = t->vip_port_be;
		sk = find_socket(ctx, &wildcard, o);
	}
	if (!sk)
		return 0;
	tp = sk->state == BPF_TCP_LISTEN ? (void *)bpf_skc_to_tcp_sock(sk) : NULL;
	if (tp)
		read_listener(tp, l);
	bpf_sk_release(sk);
	return 0;
}
