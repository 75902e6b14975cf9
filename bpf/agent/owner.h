/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* owner.h: the kernel's evidence that this server owns a flow. */
#pragma once
#include "agent/socket.h"
#include "core/siphash.h"

struct holding {
	bool mine;
	bool established; /* by a full socket */
	bool cookie;	  /* by a valid SYN cookie alone, which any server may have sent */
	__u32 expects;	  /* next sequence number of the full socket */
	__u32 edge;	  /* the right edge of its window */
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

/* find_owner is a function of its own, so that the verifier looks at it once. */
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
		holding_from(held, p, virtual_socket.state, virtual_socket.rcv_isn,
			     virtual_socket.number);
		held->edge = virtual_socket.number + virtual_socket.window;
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
			holding_from(held, p, BPF_TCP_TIME_WAIT, 0,
				     tw->tw_sk.__tw_common.skc_tw_snd_nxt);
		break;
	case BPF_TCP_NEW_SYN_RECV:
		req = (void *)bpf_skc_to_tcp_request_sock(sk);
		if (req)
			holding_from(held, p, BPF_TCP_NEW_SYN_RECV, req->rcv_isn, req->snt_isn);
		break;
	default:
		tp = (void *)bpf_skc_to_tcp_sock(sk);
		if (!tp)
			break;
		holding_from(held, p, BPF_TCP_ESTABLISHED,
			     tp->rcv_nxt - (__u32)tp->bytes_received - 1, tp->rcv_nxt);
		held->edge = tp->rcv_wup + tp->rcv_wnd;
	}
	bpf_sk_release(sk);
	return 0;
}
