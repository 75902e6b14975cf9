/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* decide.h: the decision of each function of a server's SID (6LB Table III, and the
 * transitions that it leaves out). */
#pragma once
#include "agent/passed_on.h"
#include "agent/request.h"

/* owned_by_table is true of flows whose sockets are out of sight: our entry is then the
 * only evidence of ownership. */
static __always_inline bool owned_by_table(const struct request *r)
{
	return r->o->owner == OWNER_TABLE || r->p->t.protocol == IPPROTO_UDP;
}

/* find_holding finds whether this server owns the flow. The kernel accepts the SYN cookie
 * of any server, so a cookie counts only if this agent accepted the offer. */
static __always_inline void find_holding(struct xdp_md *ctx, const struct request *r,
				  const struct conn_entry *e, struct holding *held)
{
	if (owned_by_table(r)) {
		*held = (struct holding){ .mine = e->c, .generation = e->c ? e->c->generation : 0 };
		return;
	}
	find_owner(ctx, r->p, r->o, held);
	if (held->cookie && e->c && e->embryonic)
		held->mine = e->c->generation == held->generation;
}

/* establishes is true of a packet that a spoofed source cannot send: an acknowledgement,
 * or a UDP datagram after the server's response. */
static __always_inline bool establishes(const struct packet *p, const struct conn_entry *e)
{
	if (p->kind == KIND_UDP)
		return e->c && !(e->c->flags & CONN_PENDING);
	return p->kind == KIND_TCP && (p->flags & (TCP_ACK | TCP_SYN | TCP_RST)) == TCP_ACK;
}

/* establish makes a flow that this server owns established, if the packet proves its
 * client. Returns its entry; without one if there is no room, or another flow has just
 * taken the slot. */
static __always_inline struct conn_entry establish(const struct request *r, struct conn_entry e,
					   __u16 generation, __u64 now)
{
	struct conn *c;

	if ((e.c && !e.embryonic) || !establishes(r->p, &e))
		return e;
	c = e.c ? conn_establish(r->p, &e)
		: conn_adopt(r->p, r->o, r->sr->sender_be, generation, now, e.at);
	return (struct conn_entry){ .c = c };
}

/* aborts is true of a RST that the stack accepts (RFC 9293 §3.10.7.4: its sequence number
 * is the next one expected). XDP is ahead of the stack within a batch, so the payload that
 * this agent has delivered counts too. */
static __always_inline bool aborts(struct xdp_md *ctx, const struct packet *p,
				   const struct offering *o, const struct conn *c)
{
	struct holding held;

	if (p->seq == c->next_in)
		return true;
	if (o->owner == OWNER_TABLE)
		return false;
	find_owner(ctx, p, o, &held);
	return held.established && held.expects == p->seq;
}

/* observe updates the entry by a packet from the client. An ICMP message has neither flags
 * nor payload and changes only the date. */
static __always_inline void observe(struct xdp_md *ctx, const struct request *r,
				    const struct conn_entry *e, __u64 now)
{
	const struct packet *p = r->p;
	struct conn *c = e->c;

	c->seen_ns = now;
	if (!e->embryonic) {
		pending_ended(c);
		request_began(c, p);
	}
	if (p->flags & TCP_FIN)
		set_flag(c, CONN_CLIENT_FIN);
	if (p->flags & TCP_RST && aborts(ctx, p, r->o, c)) {
		set_flag(c, CONN_CLOSED);
		request_ended(c);
	}
}

/* is_repeated is true of an offer of a flow that is already here: a SYN was retransmitted,
 * or another LB has no entry for the datagram's flow. */
static __always_inline bool is_repeated(const struct request *r, struct conn_entry e, __u64 now,
				     struct conn_entry *noted)
{
	if (!e.c)
		return false;
	if (r->p->kind == KIND_UDP) {
		*noted = establish(r, e, 0, now);
		if (noted->c)
			signal_to_lb(noted->c, r->sr->sender_be, r->p->inserted);
		return true;
	}
	if (e.c->generation != generation_of(r->p->seq))
		return false;
	e.c->lb_be = r->sr->sender_be;
	e.c->seen_ns = now;
	return true;
}

/* is_live is true if the flow's connection lives: the stack answers the SYN with a
 * challenge ACK (RFC 9293 §3.10.7.4) and keeps the connection. */
static __always_inline bool is_live(const struct request *r, const struct conn_entry *e,
				  const struct listener *here)
{
	if (r->o->owner == OWNER_TABLE)
		return e->c && !e->embryonic && !conn_closed(e->c);
	return here->established;
}

static __always_inline struct decision no_listener(const struct request *r)
{
	if (has_next_node(r))
		return decided(ACT_PASS_ON, AGENT_PASS_ON_NO_LISTENER);
	if (r->sr->sid.flags & SID_FINAL) /* our stack sends the RST */
		return decided(ACT_DELIVER, AGENT_REFUSE_NO_LISTENER);
	return decided(ACT_GIVE_BACK, AGENT_GIVE_BACK_NO_LISTENER);
}

/* accept_or_pass_on decides an offer for which the listener has room; an offer that must
 * be taken is accepted whatever the load. */
static __always_inline struct decision accept_or_pass_on(const struct request *r, const struct conn_entry *e,
					       const struct listener *here, bool must, __u64 now)
{
	struct load *l = load_at(r->o->index);

	if (!must && l) {
		switch (would_accept(r->o, l, here, now)) {
		case TOO_BUSY:
			return decided(ACT_PASS_ON_OFFER, AGENT_PASS_ON_BUSY);
		case LOAD_UNKNOWN:
			return decided(ACT_PASS_ON_OFFER, AGENT_PASS_ON_UNKNOWN_LOAD);
		default:
			break;
		}
	}
	if (conn_accept(r->p, r->o, e, r->sr->sender_be, now))
		return decided(ACT_DELIVER, must ? AGENT_ACCEPT_FORCE : AGENT_ACCEPT_AVAIL);
	if (has_next_node(r))
		return decided(ACT_PASS_ON_OFFER, AGENT_PASS_ON_TABLE_FULL);
	return decided(ACT_DELIVER, AGENT_TABLE_FULL);
}

/* may_be_second is true of an offer that may follow an earlier offer of its flow, which
 * this agent passed on: the LB marks a retransmitted SYN; a datagram carries no mark. */
static __always_inline bool may_be_second(const struct request *r)
{
	if (!has_next_node(r))
		return false;
	if (r->p->kind == KIND_UDP)
		return function_of(r) == FN_CONNECT_AVAIL;
	return r->sr->sid.flags & SID_RETRY;
}

/* decide_offer: connectAvail and connectForce. */
static __always_inline struct decision decide_offer(struct xdp_md *ctx, const struct request *r,
					       struct conn_entry e, __u64 now, struct conn_entry *noted)
{
	bool must = function_of(r) == FN_CONNECT_FORCE || !has_next_node(r);
	struct listener here;

	if (!opens(r->p) && r->p->kind != KIND_UDP)
		return decided(ACT_DROP, AGENT_DROP_NOT_A_SYN);
	if (is_repeated(r, e, now, noted))
		return decided(ACT_DELIVER, AGENT_ACCEPT_REPEATED);
	find_listener(ctx, &r->p->t, r->o, &here);
	if (is_live(r, &e, &here))
		return decided(ACT_DELIVER, AGENT_ACCEPT_CHALLENGED);
	if (may_be_second(r) && was_passed_on(r->p, now))
		return decided(ACT_PASS_ON, AGENT_PASS_ON_AGAIN);
	if (!here.found)
		return no_listener(r);
	if (here.full)
		return has_next_node(r) ? decided(ACT_PASS_ON_OFFER, AGENT_PASS_ON_FULL)
					: decided(ACT_REFUSE, AGENT_REFUSE_FULL_RESET);
	return accept_or_pass_on(r, &e, &here, must, now);
}

/* sync_generation gives the entry the kernel's generation, if known, and signals to an LB
 * that named another one. */
static __always_inline void sync_generation(const struct request *r, struct conn *c, __u16 generation)
{
	if (generation)
		c->generation = generation;
	if (c->generation != named_generation(r)) {
		signal_to_lb(c, r->sr->sender_be, r->p->inserted);
	} else if (c->state == CONN_WAIT) {
		c->state = CONN_DIRECT;
		count(AGENT_ACKNOWLEDGED);
	}
}

#define TRUST_NS 1000000000ULL

/* is_sure is true of an entry that needs no lookup in the kernel: LB and agent name the
 * same connection, it was seen a moment ago and neither side has begun to close it. An
 * older entry may be of a connection that has ended, while its five-tuple lives on another
 * server and the LB's entry is as old. */
static __always_inline bool is_sure(const struct conn_entry *e, __u64 now)
{
	return !e->embryonic && !(e->c->flags & CONN_CLOSED) && now - e->c->seen_ns < TRUST_NS;
}

/* verify_steered decides ackStickiness by the kernel's sockets. A packet of no flow of
 * ours goes back: our stack would reset a connection that lives on another server. */
static __always_inline struct decision verify_steered(struct xdp_md *ctx, const struct request *r,
						struct conn_entry e, __u64 now, struct conn_entry *noted)
{
	enum counter why = AGENT_STEERED_ADOPTED;
	struct holding held = {};
	bool same = false;

	if (e.c) {
		same = e.c->generation == named_generation(r);
		why = same ? AGENT_STEERED : AGENT_STEERED_OTHER_GENERATION;
	}
	find_holding(ctx, r, &e, &held);
	if (!held.mine)
		return same && e.embryonic ? decided(ACT_DELIVER, AGENT_STEERED_EMBRYONIC)
					 : decided(ACT_GIVE_BACK, AGENT_GIVE_BACK_NOT_MINE);
	*noted = establish(r, e, held.generation ? held.generation : named_generation(r), now);
	if (!noted->c)
		return decided(ACT_DELIVER, AGENT_STEERED);
	sync_generation(r, noted->c, held.generation);
	return decided(ACT_DELIVER, why);
}

/* decide_steered: ackStickiness, the LB has an entry of the flow with this server. */
static __always_inline struct decision decide_steered(struct xdp_md *ctx, const struct request *r,
					       struct conn_entry e, __u64 now, struct conn_entry *noted)
{
	if (!e.c || e.c->generation != named_generation(r) || !is_sure(&e, now))
		return verify_steered(ctx, r, e, now, noted);
	sync_generation(r, e.c, 0);
	*noted = e;
	return decided(ACT_DELIVER, AGENT_STEERED);
}

/* pass_on_unowned decides recoverStickiness of a flow that this server does not own. At
 * the last server TCP's stack answers with a RST; UDP has no such answer. */
static __always_inline struct decision pass_on_unowned(const struct request *r)
{
	if (has_next_node(r))
		return decided(ACT_PASS_ON, AGENT_PASS_ON_NOT_MINE);
	if (r->p->kind == KIND_TCP)
		return decided(ACT_DELIVER, AGENT_UNOWNED);
	return decided(ACT_DROP, AGENT_DROP_UNOWNED);
}

/* decide_recover: recoverStickiness, the LB has no entry of the flow. */
static __always_inline struct decision decide_recover(struct xdp_md *ctx, const struct request *r,
					       struct conn_entry e, __u64 now, struct conn_entry *noted)
{
	struct holding held;

	find_holding(ctx, r, &e, &held);
	if (!held.mine)
		return pass_on_unowned(r);
	*noted = establish(r, e, held.generation, now);
	if (noted->c) {
		if (held.generation)
			noted->c->generation = held.generation;
		signal_to_lb(noted->c, r->sr->sender_be, r->p->inserted);
	}
	return decided(ACT_DELIVER, AGENT_RECOVERED);
}

/* decide_reject: another server accepted the connection first. The RST may end a request
 * socket, never a live connection. */
static __always_inline struct decision decide_reject(struct xdp_md *ctx, const struct request *r,
						struct conn_entry e)
{
	struct holding held = {};

	if (r->p->kind != KIND_TCP || !(r->p->flags & TCP_RST))
		return decided(ACT_DROP, AGENT_DROP_REJECT_STALE);
	if (!e.c || !e.embryonic || e.c->generation != named_generation(r))
		return decided(ACT_DROP, AGENT_DROP_REJECT_STALE);
	if (!owned_by_table(r))
		find_owner(ctx, r->p, r->o, &held);
	if (held.established || (held.mine && !held.generation)) /* or in TIME_WAIT */
		return decided(ACT_DROP, AGENT_DROP_REJECT_STALE);
	pending_ended(e.c);
	conn_change(r->p->hash, e.at, 0);
	return decided(ACT_DELIVER, AGENT_REJECTED);
}

/* by_function decides, and sets `noted` to the entry that the packet updates, if any. */
static __always_inline struct decision by_function(struct xdp_md *ctx, const struct request *r,
						   struct conn_entry e, __u64 now, struct conn_entry *noted)
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
	if (fn == FN_DELIVER)
		return decided(ACT_DELIVER, AGENT_DELIVER);
	now = now_ns();
	d = by_function(ctx, r, conn_find(r->p, now), now, &noted);
	if (noted.c)
		observe(ctx, r, &noted, now);
	if (d.act == ACT_PASS_ON_OFFER)
		remember_passed_on(r->p, now);
	return d;
}

/* decide is a function of its own, so that the verifier looks at it once. dt is an End.DT6
 * or DT4 and ends a route (RFC 8986 §4.6), as rj does. */
__noinline int decide(struct xdp_md *ctx, struct sr *sr, struct packet *p, const struct offering *o,
		      struct decision *d)
{
	struct packet facts;
	struct request r = { sr, &facts, o };

	if (!sr || !p || !o || !d)
		return 0;
	facts = *p; /* Linux 6.1 takes no map key from a caller's memory */
	*d = decide_request(ctx, &r);
	return 0;
}
