/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sock.h: the kernel's socket table, which decides whether this server owns a flow and how
 * many connections wait to be accepted. The structures are the kernel's; only the fields
 * read here are declared, their offsets come from its BTF. */
#pragma once
#include <bpf/bpf_core_read.h>
#include "packet/parse.h"
#include "core/siphash.h"

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
	unsigned short skc_family;
	possible_net_t skc_net;
	__be32 skc_rcv_saddr;
	__u32 skc_tw_snd_nxt;
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

struct inet_timewait_sock {
	struct sock_common __tw_common;
} KERNEL;

struct tcp_timewait_sock {
	struct inet_timewait_sock tw_sk;
} KERNEL;

#define MAX_REUSEPORT 64 /* listeners summed in one SO_REUSEPORT group */

/* find_listener and find_owner are functions of their own, so that the verifier looks at
 * each once; their arguments are never NULL, but the verifier wants proof. */

/* socket_key writes t as the kernel looks it up and returns its size, by which the kernel
 * knows the family: IPv4 addresses are not mapped there. */
static __always_inline __u32 socket_key(struct bpf_sock_tuple *key, const struct tuple *t)
{
	__builtin_memset(key, 0, sizeof(*key));
	if (is_mapped(&t->vip)) {
		key->ipv4.saddr = t->client.s6_addr32[3];
		key->ipv4.daddr = t->vip.s6_addr32[3];
		key->ipv4.sport = t->client_port_be;
		key->ipv4.dport = t->vip_port_be;
		return sizeof(key->ipv4);
	}
	__builtin_memcpy(key->ipv6.saddr, &t->client, sizeof(t->client));
	__builtin_memcpy(key->ipv6.daddr, &t->vip, sizeof(t->vip));
	key->ipv6.sport = t->client_port_be;
	key->ipv6.dport = t->vip_port_be;
	return sizeof(key->ipv6);
}

/* namespace_of is the namespace of the service's sockets, as the helpers want it. */
static __always_inline __u64 namespace_of(const struct offering *o)
{
	return o->netns < 0 ? (__u64)BPF_F_CURRENT_NETNS : (__u64)o->netns;
}

/* find_socket looks t up as the kernel would for a packet from the client; the caller
 * releases the socket. */
static __always_inline struct bpf_sock *find_socket(struct xdp_md *ctx, const struct tuple *t,
						    const struct offering *o)
{
	struct bpf_sock_tuple key;
	__u32 size = socket_key(&key, t);

	return bpf_skc_lookup_tcp(ctx, &key, size, namespace_of(o), 0);
}

struct listener {
	bool found;
	bool full;	  /* the kernel would drop a SYN now (sk_acceptq_is_full) */
	bool established; /* the flow itself has a full socket */
	__u32 queue;	  /* connections waiting to be accepted, over the whole group */
};

/* A flow's row of the socket table. A test sets virtual_sockets before loading, and then
 * writes this for the packets it sends; in a section of its own, since tests write the
 * clock's variable as a whole. */
struct socket {
	__u32 state;	 /* BPF_TCP_*; 0: nothing, not even a listener */
	__u32 rcv_isn;	 /* of a request or a full socket */
	__u32 number;	 /* request: snt_isn; full socket: rcv_nxt; TIME_WAIT: snd_nxt;
			  * listener: whether the packet acknowledges a cookie */
	__u32 listening; /* find_listener finds a listener … */
	__u32 full;	 /* … whose accept queue is full */
	__u32 queue;
};

const volatile bool virtual_sockets = false;
struct socket virtual_socket SEC(".data.sockets") = {};

static __always_inline bool is_full_socket(__u32 state)
{
	return state && state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT &&
	       state != BPF_TCP_NEW_SYN_RECV;
}

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
 * so the second lookup has a tuple that only a listener matches. */
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
		l->established = sk->state != BPF_TCP_TIME_WAIT && sk->state != BPF_TCP_NEW_SYN_RECV;
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

/* The kernel's evidence that this server owns a flow. */
struct holding {
	bool mine;
	bool established; /* by a full socket */
	bool cookie;	  /* by a valid SYN cookie alone, which any server may have sent */
	__u32 expects;	  /* next sequence number of the full socket */
	__u16 generation; /* of the connection; 0 in TIME_WAIT */
};

/* acknowledges_cookie is true if the packet ends a handshake that the listener answered
 * with a SYN cookie. The helper wants headers, and reads only the fields set here; in IPv4
 * it accepts a buffer of IPv6's length. */
static __always_inline bool acknowledges_cookie(struct bpf_sock *sk, const struct packet *p)
{
	struct tcphdr tcp = {
		.source = p->t.client_port_be,
		.dest = p->t.vip_port_be,
		.seq = bpf_htonl(p->seq),
		.ack_seq = bpf_htonl(p->ack),
		.doff = sizeof(tcp) / 4,
		.ack = 1,
	};
	union {
		struct ipv6hdr v6;
		struct iphdr v4;
	} ip = {};

	if ((p->flags & (TCP_ACK | TCP_SYN | TCP_RST)) != TCP_ACK)
		return false;
	if (is_mapped(&p->t.vip)) {
		ip.v4.version = 4;
		ip.v4.saddr = p->t.client.s6_addr32[3];
		ip.v4.daddr = p->t.vip.s6_addr32[3];
	} else {
		ip.v6.version = 6;
		ip.v6.saddr = p->t.client;
		ip.v6.daddr = p->t.vip;
	}
	return !bpf_tcp_check_syncookie(sk, &ip, sizeof(ip), &tcp, sizeof(tcp));
}

/* holding_from reads a socket as evidence for the packet. A request socket counts only if
 * the packet acknowledges its initial number: it may be of a SYN that another server also
 * accepted. */
static __always_inline void holding_from(struct holding *held, const struct packet *p, __u32 state,
				    __u32 rcv_isn, __u32 number)
{
	switch (state) {
	case 0:
		break;
	case BPF_TCP_LISTEN:
		held->cookie = number;
		held->generation = generation_of(p->seq - 1);
		break;
	case BPF_TCP_TIME_WAIT: /* or the five-tuple lives on another server */
		held->mine = number == p->ack || p->flags & TCP_RST;
		break;
	case BPF_TCP_NEW_SYN_RECV:
		if (number + 1 == p->ack) {
			held->mine = true;
			held->generation = generation_of(rcv_isn);
		}
		break;
	default:
		held->mine = held->established = true;
		held->expects = number;
		held->generation = generation_of(rcv_isn);
	}
}

__noinline int find_owner(struct xdp_md *ctx, const struct packet *p, const struct offering *o,
			  struct holding *held)
{
	struct tcp_timewait_sock *tw;
	struct tcp_request_sock *req;
	struct tcp_sock *tp;
	struct bpf_sock *sk;

	if (!p || !o || !held)
		return 0;
	*held = (struct holding){};
	if (virtual_sockets) {
		holding_from(held, p, virtual_socket.state, virtual_socket.rcv_isn, virtual_socket.number);
		return 0;
	}
	sk = find_socket(ctx, &p->t, o);
	if (!sk)
		return 0;
	switch (sk->state) {
	case BPF_TCP_LISTEN:
		holding_from(held, p, BPF_TCP_LISTEN, 0, acknowledges_cookie(sk, p));
		break;
	case BPF_TCP_TIME_WAIT:
		tw = (void *)bpf_skc_to_tcp_timewait_sock(sk);
		if (tw)
			holding_from(held, p, BPF_TCP_TIME_WAIT, 0, tw->tw_sk.__tw_common.skc_tw_snd_nxt);
		break;
	case BPF_TCP_NEW_SYN_RECV:
		req = (void *)bpf_skc_to_tcp_request_sock(sk);
		if (req)
			holding_from(held, p, BPF_TCP_NEW_SYN_RECV, req->rcv_isn, req->snt_isn);
		break;
	default:
		tp = (void *)bpf_skc_to_tcp_sock(sk);
		if (tp)
			holding_from(held, p, BPF_TCP_ESTABLISHED,
				tp->rcv_nxt - (__u32)tp->bytes_received - 1, tp->rcv_nxt);
	}
	bpf_sk_release(sk);
	return 0;
}
