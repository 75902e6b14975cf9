/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* signal.h: the signals of packets to the client. */
#pragma once
#include "agent/flow.h"
#include "packet/rewrite.h"

BEHIND(skb, __sk_buff)

/* read_outward_behind is read_outward of a packet with options. A function of its own, as it is rare. */
__noinline int read_outward_behind(struct __sk_buff *skb, struct packet *p)
{
	enum reading how;

	if (!p)
		return false;
	reverse(&p->t);
	how = skb_read_upper(skb, p);
	reverse(&p->t);
	return (how == READ || how == IN_PART) && p->kind != KIND_TOO_BIG && may_be_offered(p);
}

/* read_outward parses a packet on its way out. False: it is no service's. The linear part of a
 * super-packet is enough: it holds the headers. */
static __always_inline bool read_outward(struct __sk_buff *skb, struct packet *p)
{
	struct cursor c = frame_at(skb, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	enum reading how;

	if (!eth || (eth->h_proto != bpf_htons(ETH_P_IPV6) && eth->h_proto != bpf_htons(ETH_P_IP)))
		return false;
	how = read_at(eth, c.end, ETH_BYTES, p, OUTWARD);
	if ((how == READ || how == IN_PART) && p->kind != KIND_TOO_BIG && may_be_offered(p))
		return true;
	return p->kind == KIND_EXTENSION && read_outward_behind(skb, p);
}

/* sent_before is true of a retransmission. */
static __always_inline bool sent_before(struct conn *c, const struct packet *p)
{
	__u32 end = p->seq + p->payload + !!(p->flags & TCP_SYN) + !!(p->flags & TCP_FIN);
	bool before = !set_flag(c, CONN_NEXT_OUT) && (__s32)(end - c->next_out) <= 0;

	if (!before)
		c->next_out = end;
	return before && !(p->flags & TCP_RST) && (p->payload || p->flags & TCP_FIN);
}

/* acknowledge_in makes the server's acknowledgement the end of the client's data: the stack may
 * have dropped a packet that this agent counted (checksum, timestamp, window), and the client's
 * next request would seem to have been seen. */
static __always_inline void acknowledge_in(const struct conn_entry *e, const struct packet *p)
{
	if (p->kind == KIND_TCP && p->flags & TCP_ACK && !(p->flags & TCP_RST) && !e->embryonic)
		e->c->next_in = p->ack;
}

/* note_syn_ack notes the acknowledgement that ends the handshake of an embryonic entry. The kernel
 * may still have a request socket of an earlier SYN: its SYN-ACK acknowledges another number. */
static __always_inline void note_syn_ack(struct conn *c, const struct packet *p)
{
	if (p->flags & TCP_ACK && p->ack == c->next_in)
		c->next_out = p->seq + 1;
}

/* signal_to_send returns the function in which an outward packet goes by the LB, or
 * FN_NONE. Of an embryonic connection only the SYN-ACK is a signal: any other packet may be
 * of an older connection that the kernel still has. Retransmitted data or FIN goes straight
 * to the client: the LB of the first signal may be dead. UDP has no end to signal. */
static __always_inline enum function signal_to_send(const struct conn_entry *e,
						    const struct packet *p)
{
	bool ends = p->flags & (TCP_FIN | TCP_RST);
	struct conn *c = e->c;

	if (p->kind == KIND_UDP)
		load_on_arrival(c);
	if (p->flags & TCP_RST)
		set_flag(c, CONN_CLOSED);
	if (p->flags & TCP_FIN)
		set_flag(c, CONN_SERVER_FIN);
	if (p->payload || ends) {
		acknowledge_in(e, p);
		if (p->payload)
			load_on_answer(c);
		else
			load_on_end(c);
	}
	if (ends)
		set_flag(c, CONN_REMOVAL_DUE);
	if (p->flags & TCP_SYN && e->embryonic)
		note_syn_ack(c, p);
	if (p->kind == KIND_TCP && !(p->flags & TCP_SYN) && (e->embryonic || sent_before(c, p)))
		return FN_NONE;
	if (!c->lb_be) /* adopted, and no LB has sent a packet yet */
		return FN_NONE;
	if (c->state == CONN_WAIT)
		return FN_CREATE_STICKINESS;
	return c->flags & CONN_REMOVAL_DUE ? FN_REMOVE_STICKINESS : FN_NONE;
}
