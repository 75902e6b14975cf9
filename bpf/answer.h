/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* answer.h: what each function of a server's SID decides (6LB Table III, with
 * the transitions it leaves out). */
#pragma once
#include "request.h"

/* repeated tells whether an offer is for a connection that is already here:
 * its SYN came again, or a SYN strays into a live connection, which the stack
 * answers with a challenge ACK (RFC 9293 §3.10.7.4) and keeps. */
static __always_inline enum counter repeated(struct xdp_md *ctx, struct request *r)
{
	struct conn *c = conn_find(&r->t);
	struct owner owner;

	if (!c)
		return COUNTERS;
	if (c->generation == generation_of(bpf_ntohl(r->s.tcp->seq))) {
		c->lb_be = r->sr.sender_be;
		return AGENT_ACCEPT_REPEATED;
	}
	find_owner(ctx, &r->t, 0, &owner);
	return owner.established ? AGENT_ACCEPT_CHALLENGED : COUNTERS;
}

/* offered is connectAvail and connectForce. The last segment must be taken. */
static __always_inline struct decision offered(struct xdp_md *ctx, struct request *r, bool force)
{
	bool last = force || !r->sr.next;
	enum counter again = repeated(ctx, r);
	__u64 now = now_ns();
	struct listener here;
	struct load *l;

	if (again != COUNTERS)
		return decided(ACT_DELIVER, again);
	find_listener(ctx, &r->t, &here);
	if (!here.found) /* our stack answers the last one with a RST */
		return last ? decided(ACT_DELIVER, AGENT_REFUSE_NO_LISTENER)
			    : decided(ACT_PASS_ON, AGENT_PASS_ON_NO_LISTENER);
	if (here.full)
		return last ? decided(ACT_REFUSE, AGENT_REFUSE_FULL_RESET)
			    : decided(ACT_PASS_ON, AGENT_PASS_ON_FULL);
	l = load_number(r->o->index);
	if (!last && l) {
		switch (would_take(r->o, l, &here, now)) {
		case TOO_BUSY:
			return decided(ACT_PASS_ON, AGENT_PASS_ON_BUSY);
		case LOAD_UNKNOWN:
			return decided(ACT_PASS_ON, AGENT_PASS_ON_UNKNOWN_LOAD);
		default:
			break;
		}
	}
	if (!conn_accept(&r->t, &r->s, r->o, &r->sr, now))
		return last ? decided(ACT_DELIVER, AGENT_TABLE_FULL)
			    : decided(ACT_PASS_ON, AGENT_PASS_ON_TABLE_FULL);
	return decided(ACT_DELIVER, last ? AGENT_ACCEPT_FORCE : AGENT_ACCEPT_AVAIL);
}

/* aborts tells whether the stack will believe a RST (RFC 9293 §3.10.7.4: its
 * sequence number is the next one expected). XDP is ahead of the stack when both
 * came in one batch, so what this agent has handed on counts too. */
static __always_inline bool aborts(struct xdp_md *ctx, struct request *r, const struct conn *c)
{
	__u32 seq = bpf_ntohl(r->s.tcp->seq);
	struct owner owner;

	if (seq == c->next_in)
		return true;
	find_owner(ctx, &r->t, 0, &owner);
	return owner.established && owner.expects == seq;
}

/* observe keeps what a packet from the client tells about its connection. */
static __always_inline void observe(struct xdp_md *ctx, struct request *r, struct conn *c,
				    __u64 now)
{
	c->seen_ns = now;
	arrived(c);
	asked(c, &r->s);
	if (r->s.tcp->fin)
		set(c, CONN_CLIENT_FIN);
	if (r->s.tcp->rst && aborts(ctx, r, c)) {
		set(c, CONN_CLOSED);
		answered(c);
	}
}

/* steered is ackStickiness: the LB knows that the flow is here. */
static __always_inline enum counter steered(struct xdp_md *ctx, struct request *r)
{
	__u16 generation = bpf_ntohs(r->sr.sid.generation_be);
	struct conn *c = conn_find(&r->t);
	enum counter why = AGENT_STEERED;
	__u64 now = now_ns();
	struct owner owner;

	if (!c) {
		find_owner(ctx, &r->t, bpf_ntohl(r->s.tcp->ack_seq), &owner);
		if (!owner.mine)
			return AGENT_STEERED_UNKNOWN;
		c = conn_adopt(&r->t, &r->s, r->o, &r->sr,
			       owner.generation ? owner.generation : generation, CONN_DIRECT, now);
		why = AGENT_STEERED_ADOPTED;
		if (!c)
			return why;
	}
	if (c->generation != generation)
		return AGENT_STEERED_OTHER_GENERATION;
	if (c->state == CONN_WAIT) {
		c->state = CONN_DIRECT;
		count(AGENT_ACKNOWLEDGED);
	}
	observe(ctx, r, c, now);
	return why;
}

/* recover is recoverStickiness: the LB does not know whose flow this is. */
static __always_inline struct decision recover(struct xdp_md *ctx, struct request *r)
{
	struct conn *c = conn_find(&r->t);
	__u64 now = now_ns();
	struct owner owner;

	find_owner(ctx, &r->t, bpf_ntohl(r->s.tcp->ack_seq), &owner);
	if (!owner.mine)
		return r->sr.next ? decided(ACT_PASS_ON, AGENT_PASS_ON_NOT_MINE)
				  : decided(ACT_DELIVER, AGENT_UNOWNED);
	if (!c)
		c = conn_adopt(&r->t, &r->s, r->o, &r->sr, owner.generation, CONN_WAIT, now);
	if (c) {
		c->lb_be = r->sr.sender_be;
		c->state = CONN_WAIT;
		observe(ctx, r, c, now);
	}
	return decided(ACT_DELIVER, AGENT_RECOVERED);
}

/* answer finds what the function of our SID asks for. */
static __always_inline struct decision answer(struct xdp_md *ctx, struct request *r)
{
	__u16 fn = bpf_ntohs(r->sr.sid.function_be);

	switch (fn) {
	case FN_CONNECT_AVAIL:
	case FN_CONNECT_FORCE:
		if (!opens(r->s.tcp))
			return decided(ACT_DROP, AGENT_DROP_NOT_A_SYN);
		return offered(ctx, r, fn == FN_CONNECT_FORCE);
	case FN_ACK_STICKINESS:
		return decided(ACT_DELIVER, steered(ctx, r));
	case FN_RECOVER_STICKINESS:
		return recover(ctx, r);
	case FN_DELIVER: /* an End.DT6, which ends a route (RFC 8986 §4.6) */
		if (r->sr.next)
			return decided(ACT_DROP, AGENT_DROP_SEGMENTS_LEFT);
		return decided(ACT_DELIVER, AGENT_DELIVER);
	}
	return decided(ACT_DROP, AGENT_DROP_UNKNOWN_FUNCTION);
}
