/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* listener.h: the socket that would accept a new connection, and how many connections wait
 * in its accept queue. */
#pragma once
#include "agent/clock.h"
#include "agent/complete.h"
#include "agent/socket.h"

#define MAX_REUSEPORT 64 /* listeners summed in one SO_REUSEPORT group */

struct listener {
	bool found;
	bool full;	  /* the kernel would drop a SYN now (sk_acceptq_is_full) */
	bool established; /* the flow itself has a full socket */
	__u32 queue;	  /* connections waiting to be accepted, over the whole group */
};

/* The connections that wait for accept, and how many may. */
struct queue {
	__u32 length;
	__u32 most;
};

static __always_inline bool is_full(const struct queue *q)
{
	return q->length > q->most;
}

/* read_queue reads both numbers at once: they are neighbours in the kernels of today. */
static __always_inline bool read_queue(const struct sock *sk, struct queue *q)
{
	if (bpf_core_field_offset(sk->sk_max_ack_backlog) !=
	    bpf_core_field_offset(sk->sk_ack_backlog) + sizeof(q->length))
		return !bpf_core_read(&q->length, sizeof(q->length), &sk->sk_ack_backlog) &&
		       !bpf_core_read(&q->most, sizeof(q->most), &sk->sk_max_ack_backlog);
	return !bpf_core_read(q, sizeof(*q), &sk->sk_ack_backlog);
}

/* The sum over a SO_REUSEPORT group. */
struct group {
	struct sock_reuseport *of;
	__u32 queue;
	bool full; /* a member is */
};

/* add_queue is the callback of bpf_loop. */
static long add_queue(__u64 i, struct group *g)
{
	struct sock_reuseport *of = g->of;
	struct sock *member;
	struct queue q;

	if (bpf_core_read(&member, sizeof(member), &of->socks[i % MAX_REUSEPORT]) ||
	    !read_queue(member, &q))
		return 1;
	g->queue += q.length;
	g->full |= is_full(&q);
	return 0;
}

static __always_inline void add_queues(struct group *g)
{
	struct sock_reuseport *of = g->of;
	__u32 members = BPF_CORE_READ(of, num_socks);

	bpf_loop(members < MAX_REUSEPORT ? members : MAX_REUSEPORT, add_queue, g, 0);
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

/* How long a remembered listener is believed: a socket that is bound more closely to the service's
 * address may listen since. */
#define REMEMBERED_NS 1000000000ULL

#define FIRST_BYTES 96 /* of a socket: they distinguish a listener */

/* The last listener that a look-up found for a service. Another CPU may write a record meanwhile:
 * so each is held against the socket itself. */
struct remembered {
	__u64 sk;	/* its address in the kernel */
	__u64 found_ns; /* 0: none */
	__u64 first[FIRST_BYTES / 8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct remembered);
} listeners SEC(".maps");

static __always_inline struct remembered *remembered_at(__u32 index)
{
	return bpf_map_lookup_elem(&listeners, &index);
}

static __always_inline void remember_listener(struct sock *sk, __u32 index)
{
	struct remembered *r = remembered_at(index);

	if (!r || bpf_probe_read_kernel(r->first, sizeof(r->first), sk))
		return;
	r->sk = (__u64)sk;
	r->found_ns = now_ns();
}

/* DIFFER is true if a field of two sockets differs, as so many bytes, `at` behind its beginning;
 * and on a kernel that has it elsewhere. */
#define DIFFER(type, a, b, field, at)                                                            \
	(bpf_core_field_offset(struct sock_common, field) + (at) + sizeof(type) > FIRST_BYTES || \
	 *(const type *)((const void *)(a) + bpf_core_field_offset(struct sock_common, field) +  \
			 (at)) !=                                                                \
		 *(const type *)((const void *)(b) +                                             \
				 bpf_core_field_offset(struct sock_common, field) + (at)))

/* same_listener: a socket that listens keeps its ports, its family and state and the bytes
 * behind them (whether IPv6 only, its device), its namespace and its address. */
static __always_inline bool same_listener(const __u64 *a, const __u64 *b)
{
	__u32 state = bpf_core_field_offset(struct sock_common, skc_state);

	if (state >= FIRST_BYTES || *((const __u8 *)a + state) != BPF_TCP_LISTEN)
		return false;
	return !(DIFFER(__u32, a, b, skc_dport, 0) || DIFFER(__u64, a, b, skc_family, 0) ||
		 DIFFER(__u64, a, b, skc_net, 0) || DIFFER(__u64, a, b, skc_v6_rcv_saddr, 0) ||
		 DIFFER(__u64, a, b, skc_v6_rcv_saddr, 8));
}

/* recall_listener is find_listener for a flow that surely has no connection, by the listener of
 * an offer before. Returns false if that no longer listens, was found a while ago, or if it
 * depends on the flow which member of its group would have to take it. */
__noinline bool recall_listener(const struct offering *o, struct listener *l)
{
	struct remembered *r = o ? remembered_at(o->index) : NULL;
	struct group g = {};
	__u64 first[FIRST_BYTES / 8];
	struct queue q;
	struct sock *sk;

	if (!r || !l || now_ns() - r->found_ns >= REMEMBERED_NS)
		return false;
	sk = (struct sock *)r->sk;
	if (bpf_probe_read_kernel(first, sizeof(first), sk) || !same_listener(first, r->first) ||
	    !read_queue(sk, &q) || bpf_core_read(&g.of, sizeof(g.of), &sk->sk_reuseport_cb))
		return false;
	*l = (struct listener){ .found = true, .full = is_full(&q), .queue = q.length };
	if (!g.of)
		return true;
	add_queues(&g);
	l->queue = g.queue;
	l->full = false;
	return !g.full;
}

/* read_listener adds up the accept queues of the listener's group. */
static __always_inline void read_listener(struct tcp_sock *tp, struct listener *l)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct group g = { .of = sk->sk_reuseport_cb };

	l->found = true;
	l->queue = sk->sk_ack_backlog;
	l->full = l->queue > sk->sk_max_ack_backlog;
	if (!g.of)
		return;
	add_queues(&g);
	l->queue = g.queue;
}

/* find_listener finds the socket that would accept a new connection of this flow, or
 * receive its datagram. A socket in TIME_WAIT hides the listener from the flow's own tuple,
 * so the second lookup has a tuple that only a listener matches. An `unknown` flow has no entry:
 * while the table is complete it has no connection either. A function of its own, so that the
 * verifier looks at it once; its arguments are never NULL, but the verifier wants proof. */
__noinline int find_listener(struct xdp_md *ctx, const struct tuple *t, const struct offering *o,
			     struct listener *l, bool unknown)
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
	if (unknown && o->owner == OWNER_SOCKET && conns_have_all() && recall_listener(o, l))
		return 0;
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
	if (tp) {
		read_listener(tp, l);
		remember_listener(&tp->inet_conn.icsk_inet.sk, o->index);
	}
	bpf_sk_release(sk);
	return 0;
}
