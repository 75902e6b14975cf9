/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* decide.h: the decision on a request, by the function of its SID (6LB Table III, and the
 * transitions that it leaves out). */
#pragma once
#include "agent/clock.h"
#include "agent/offer.h"
#include "agent/stickiness.h"

/* is_in_window is true of a sequence number that the stack takes: the next number expected, the number
 * before it, or a number in the window of the flow's socket. A client or a stranger chooses any
 * other, and the stack drops that packet. A function of its own: a gap is rare. */
__noinline bool is_in_window(struct xdp_md *ctx, const struct packet *p, const struct offering *o,
			     __u32 next_in)
{
	struct holding held;
	__s32 gap;

	if (!p || !o)
		return false;
	gap = p->seq - next_in;
	if (gap <= 0)
		return true;
	if (o->owner == OWNER_TABLE)
		return gap <= MAX_GAP;
	find_owner(ctx, p, o, &held);
	return held.established && (__s32)(held.edge - p->seq) >= 0;
}

/* advance counts payload and a FIN of the client that the stack takes. A FIN behind a gap is no
 * end of the client's data: packets of before are to be counted yet. */
static __always_inline void advance(struct xdp_md *ctx, const struct request *r,
				    const struct conn_entry *e)
{
	const struct packet *p = r->p;
	struct conn *c = e->c;
	bool asks;

	if (!is_past(c, p) || !is_in_window(ctx, p, r->o, c->next_in))
		return;
	asks = p->payload && (__s32)(end_of(p) - !!(p->flags & TCP_FIN) - c->next_in) > 0;
	if (p->flags & TCP_FIN)
		set_flag(c, CONN_CLIENT_FIN);
	if (e->embryonic)
		return;
	if (asks || (__s32)(p->seq - c->next_in) <= 0)
		c->next_in = end_of(p);
	if (asks)
		load_on_in(c);
}

/* reset_by_client ends the flow by a RST that the stack accepts (RFC 9293 §3.10.7.4: its
 * sequence number is the next number expected). XDP is ahead of the stack within a batch, so a
 * RST behind payload that only this agent has counted may be accepted, too: the entry then
 * goes after linger, and until then counts its request, unless the client goes on. */
static __always_inline void reset_by_client(struct xdp_md *ctx, const struct request *r,
					    struct conn *c)
{
	const struct packet *p = r->p;
	struct holding held = {};

	if (r->o->owner != OWNER_TABLE)
		find_owner(ctx, p, r->o, &held);
	if (held.established ? held.expects == p->seq : c->next_in == p->seq) {
		set_flag(c, CONN_CLOSED);
		load_on_end(c);
	} else if (c->next_in == p->seq) {
		set_flag(c, CONN_DOUBTED);
	}
}

/* go_on takes the numbers of the socket, which outlived a RST. */
static __always_inline void go_on(struct xdp_md *ctx, const struct request *r, struct conn *c)
{
	struct holding held;

	find_owner(ctx, r->p, r->o, &held);
	if (held.established && clear_flag(c, CONN_DOUBTED))
		c->next_in = held.expects;
}

/* observe updates the entry by a packet from the client. An ICMP message has neither flags
 * nor payload and changes only the date. */
static __always_inline void observe(struct xdp_md *ctx, const struct request *r,
				    const struct conn_entry *e, __u64 now)
{
	const struct packet *p = r->p;
	struct conn *c = e->c;

	c->seen = now >> SEEN_SHIFT;
	if (!e->embryonic)
		load_on_arrival(c);
	if (c->flags & CONN_DOUBTED && !(p->flags & TCP_RST))
		go_on(ctx, r, c);
	if (p->kind != KIND_UDP)
		advance(ctx, r, e);
	else if (!e->embryonic && p->payload) {
		c->next_in += c->next_in < TALKS; /* counts datagrams */
		load_on_in(c);
	}
	if (p->flags & TCP_RST)
		reset_by_client(ctx, r, c);
}

/* by_function decides, and sets `noted` to the entry that the packet updates, if any. */
static __always_inline struct decision by_function(struct xdp_md *ctx, const struct request *r,
						   struct conn_entry e, __u64 now,
						   struct conn_entry *noted)
{
	switch (function_of(r)) {
	case FN_CONNECT_AVAIL:
	case FN_CONNECT_FORCE:
		return decide_offer(ctx, r, e, now, noted);
	case FN_ACK_STICKINESS:
		return decide_steered(ctx, r, e, now, noted);
	case FN_RECOVER_STICKINESS:
		return decide_recover(ctx, r, e, now, noted);
	case FN_REJECT:
		return decide_reject(ctx, r, e);
	}
	return decided(ACT_DROP, AGENT_DROP_UNKNOWN_FUNCTION);
}

static __always_inline struct decision decide_request(struct xdp_md *ctx, const struct request *r)
{
	__u16 fn = function_of(r);
	struct conn_entry noted = {};
	struct decision d;
	__u64 now;

	if ((fn == FN_REJECT || fn == FN_DELIVER) && has_next_node(r))
		return decided(ACT_DROP, AGENT_DROP_SEGMENTS_LEFT);
	if (fn == FN_DELIVER) {
		if (opens(r->p))
			conns_may_lack();
		return decided(ACT_DELIVER, AGENT_DELIVER);
	}
	now = now_ns();
	d = by_function(ctx, r, conn_find(r->p, now, fn != FN_ACK_STICKINESS), now, &noted);
	if (noted.c)
		observe(ctx, r, &noted, now);
	if (d.act == ACT_PASS_ON_OFFER)
		remember_passed_on(r->p, now);
	return d;
}

/* decide is a function of its own, so that the verifier looks at it once. It finds the packet that
 * read_request read by itself: Linux 6.1 takes no map key from a caller's memory. dt is an End.DT6
 * or DT4 and ends a route (RFC 8986 §4.6), as rj does. */
__noinline int decide(struct xdp_md *ctx, const struct offering *o, struct decision *d)
{
	struct scratch *scr = scratch();
	struct request r;

	if (!scr || !o || !d)
		return 0;
	r = (struct request){ &scr->sr, &scr->packet, o };
	*d = decide_request(ctx, &r);
	return 0;
}

static __always_inline bool is_offer(const struct sr *sr)
{
	return sr->sid.function_be == bpf_htons(FN_CONNECT_AVAIL) ||
	       sr->sid.function_be == bpf_htons(FN_CONNECT_FORCE);
}

/* answer_held decides again on an offer whose established flow the LB has with this server:
 * no other server may have it before this server has released the flow, and the LB has to be
 * informed of a flow that is alive. A function of its own for the verifier. */
__noinline int answer_held(const struct sr *sr, struct decision *d)
{
	if (!sr || !d || !is_offer(sr))
		return 0;
	if (d->act == ACT_PASS_ON || d->act == ACT_PASS_ON_OFFER)
		*d = decided(ACT_GIVE_BACK, AGENT_GIVE_BACK_RELEASED);
	else if (d->why == AGENT_ACCEPT_CHALLENGED)
		*d = decided(ACT_GIVE_BACK, AGENT_GIVE_BACK_LIVE);
	return 0;
}
