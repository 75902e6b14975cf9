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

/* Distinguishes a listener. No field changes as long as it listens. */
struct identity {
	__u64 net;
	__u64 address[2];
	__u32 device;
	__u16 port;
	__u8 state;
	__u8 ipv6only;
};

/* The last listener that a look-up found for a service. Another CPU may write a record meanwhile:
 * so each is held against the socket itself. */
struct remembered {
	__u64 sk;	/* its address in the kernel */
	__u64 found_ns; /* 0: none */
	struct identity identity;
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

/* The facts of a listener that an offer needs. */
struct listening {
	struct identity identity;
	struct queue queue;
	struct sock_reuseport *of; /* its group, or NULL */
};

/* SEE fills a struct listening from a socket: DIRECTLY by loads, where the verifier knows the
 * pointer's type; BY_HELPER in Linux 6.1, where it cannot learn that of a remembered address.
 * The memory may be another socket's by now, or anything's: no read of it is a fault. */
#define SEE(seen, sk, READ)                                                              \
	do {                                                                             \
		struct identity *id = &(seen)->identity;                                 \
		READ(&id->net, &(sk)->__sk_common.skc_net.net);                          \
		READ(&id->address[0], (__u64 *)&(sk)->__sk_common.skc_v6_rcv_saddr);     \
		READ(&id->address[1], (__u64 *)&(sk)->__sk_common.skc_v6_rcv_saddr + 1); \
		READ(&id->device, &(sk)->__sk_common.skc_bound_dev_if);                  \
		READ(&id->port, &(sk)->__sk_common.skc_num);                             \
		READ(&id->state, &(sk)->__sk_common.skc_state);                          \
		READ(&(seen)->queue.length, &(sk)->sk_ack_backlog);                      \
		READ(&(seen)->queue.most, &(sk)->sk_max_ack_backlog);                    \
		READ(&(seen)->of, &(sk)->sk_reuseport_cb);                               \
	} while (0)

#define DIRECTLY(to, from) (*(to) = (typeof(*(to)))(*(from)))
#define BY_HELPER(to, from) bpf_core_read(to, sizeof(*(to)), from)

static __always_inline void remember_listener(struct sock *sk, const struct listening *seen,
					      __u32 index)
{
	struct remembered *r = remembered_at(index);

	if (!r)
		return;
	r->sk = (__u64)sk;
	r->found_ns = now_ns();
	r->identity = seen->identity;
}

extern void *bpf_rdonly_cast(const void *at, __u32 type) __ksym __weak;

static __always_inline void see_again(struct listening *seen, __u64 at)
{
	struct sock *sk = (struct sock *)at;

	if (bpf_rdonly_cast) {
		sk = bpf_rdonly_cast(sk, bpf_core_type_id_kernel(struct sock));
		SEE(seen, sk, DIRECTLY);
		seen->identity.ipv6only = BPF_CORE_READ_BITFIELD(&sk->__sk_common, skc_ipv6only);
	} else {
		SEE(seen, sk, BY_HELPER);
		seen->identity.ipv6only =
			BPF_CORE_READ_BITFIELD_PROBED(&sk->__sk_common, skc_ipv6only);
	}
}

static __always_inline bool same_listener(const struct identity *a, const struct identity *b)
{
	const __u64 *v = (const void *)a, *w = (const void *)b;

	return !((v[0] ^ w[0]) | (v[1] ^ w[1]) | (v[2] ^ w[2]) | (v[3] ^ w[3]));
}

/* recall_listener is find_listener by the listener of an offer before, for an `unknown` flow, which
 * has no entry: while the table is complete it has no connection either. Returns false if the
 * kernel has to be asked: the table is incomplete, the listener is gone or was found a while ago,
 * or it depends on the flow which member of its group would have to take it. */
__noinline bool recall_listener(const struct offering *o, struct listener *l, bool unknown)
{
	struct remembered *r = o ? remembered_at(o->index) : NULL;
	struct listening seen = {};
	struct group g = {};

	if (!r || !l || !unknown || o->owner != OWNER_SOCKET || !conns_have_all() ||
	    now_ns() - r->found_ns >= REMEMBERED_NS)
		return false;
	see_again(&seen, r->sk);
	if (seen.identity.state != BPF_TCP_LISTEN || !same_listener(&seen.identity, &r->identity))
		return false;
	*l = (struct listener){
		.found = true,
		.full = is_full(&seen.queue),
		.queue = seen.queue.length,
	};
	if (!seen.of)
		return true;
	g.of = seen.of;
	add_queues(&g);
	l->queue = g.queue;
	l->full = false;
	return !g.full;
}

/* read_listener adds up the accept queues of the listener's group. */
static __always_inline void read_listener(struct tcp_sock *tp, struct listener *l, __u32 index)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	struct listening seen = {};
	struct group g = {};

	SEE(&seen, sk, DIRECTLY);
	seen.identity.ipv6only = BPF_CORE_READ_BITFIELD(&sk->__sk_common, skc_ipv6only);
	remember_listener(sk, &seen, index);
	l->found = true;
	l->queue = seen.queue.length;
	l->full = is_full(&seen.queue);
	if (!seen.of)
		return;
	g.of = seen.of;
	add_queues(&g);
	l->queue = g.queue;
}

/* find_listener finds the socket that would accept a new connection of this flow, or
 * receive its datagram. A socket in TIME_WAIT hides the listener from the flow's own tuple,
 * so the second lookup has a tuple that only a listener matches. A function of its
 * own, so that the verifier looks at it once; its arguments are never NULL, but the verifier wants
 * proof. */
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
		read_listener(tp, l, o->index);
	bpf_sk_release(sk);
	return 0;
}
