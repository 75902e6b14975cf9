/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* answer.h: what each function of a server's SID decides (6LB Table III, with
 * the transitions it leaves out). */
#pragma once
#include "agent/refused.h"
#include "agent/request.h"

/* by_table tells the flows whose sockets cannot be asked: then an entry of ours
 * says whose they are. */
static __always_inline bool by_table(const struct request *r)
{
	return r->o->owner == OWNER_TABLE || r->p->t.protocol == IPPROTO_UDP;
}

/* whose tells whether a flow is ours. The kernel believes a cookie whoever gave
 * it out, so it is ours only if this agent accepted the offer. */
static __always_inline void whose(struct xdp_md *ctx, const struct request *r,
				  const struct entry *e, struct holding *held)
{
	if (by_table(r)) {
		*held = (struct holding){ .mine = e->c, .generation = e->c ? e->c->generation : 0 };
		return;
	}
	find_owner(ctx, r->p, r->o, held);
	if (held->cookie && e->c && e->waiting)
		held->mine = e->c->generation == held->generation;
}

/* is_proof tells whether a packet of a flow that is ours shows that its client is
 * there: it acknowledges, or in UDP goes on after an answer. */
static __always_inline bool is_proof(const struct packet *p, const struct entry *e)
{
	if (p->kind == KIND_UDP)
		return e->c && !(e->c->flags & CONN_PENDING);
	return p->kind == KIND_TCP && (p->flags & (TCP_ACK | TCP_SYN | TCP_RST)) == TCP_ACK;
}

/* settle notes that the client of a flow that is ours is there, and returns its entry, or
 * none: there is no room, or another flow has just taken its place. */
static __always_inline struct entry settle(const struct request *r, struct entry e,
					   __u16 generation, __u64 now)
{
	struct conn *c;

	if ((e.c && !e.waiting) || !is_proof(r->p, &e))
		return e;
	c = e.c ? conn_establish(r->p, &e)
		: conn_adopt(r->p, r->o, r->sr->sender_be, generation, now, e.at);
	return (struct entry){ .c = c };
}

/* aborts tells whether the stack will believe a RST (RFC 9293 §3.10.7.4: its
 * sequence number is the next one expected). XDP is ahead of the stack when both
 * came in one batch, so what this agent has handed on counts too. */
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

/* observe keeps what a packet from the client tells about its connection; an ICMP
 * message has neither flags nor payload, and tells nothing. */
static __always_inline void observe(struct xdp_md *ctx, const struct request *r,
				    const struct entry *e, __u64 now)
{
	const struct packet *p = r->p;
	struct conn *c = e->c;

	c->seen_ns = now;
	if (!e->waiting) {
		arrived(c);
		asked(c, p);
	}
	if (p->flags & TCP_FIN)
		set(c, CONN_CLIENT_FIN);
	if (p->flags & TCP_RST && aborts(ctx, p, r->o, c)) {
		set(c, CONN_CLOSED);
		answered(c);
	}
}

/* repeated tells whether an offer is for what is already here: the SYN came
 * again, or another LB does not know whose the datagram is. */
static __always_inline bool repeated(const struct request *r, struct entry e, __u64 now,
				     struct entry *noted)
{
	if (!e.c)
		return false;
	if (r->p->kind == KIND_UDP) {
		*noted = settle(r, e, 0, now);
		if (noted->c)
			await(noted->c, r->sr->sender_be, r->p->inserted);
		return true;
	}
	if (e.c->generation != generation_of(r->p->seq))
		return false;
	e.c->lb_be = r->sr->sender_be;
	e.c->seen_ns = now;
	return true;
}

/* lives tells whether a SYN strays into a live connection: the stack answers with
 * a challenge ACK (RFC 9293 §3.10.7.4) and keeps it. */
static __always_inline bool lives(const struct request *r, const struct entry *e,
				  const struct listener *here)
{
	if (r->o->owner == OWNER_TABLE)
		return e->c && !e->waiting && !conn_over(e->c);
	return here->established;
}

static __always_inline struct decision no_listener(const struct request *r)
{
	if (others_follow(r))
		return decided(ACT_PASS_ON, AGENT_PASS_ON_NO_LISTENER);
	if (r->sr->sid.flags & SID_FINAL) /* our stack refuses it */
		return decided(ACT_DELIVER, AGENT_REFUSE_NO_LISTENER);
	return decided(ACT_GIVE_BACK, AGENT_RETURN_NO_LISTENER);
}

/* take_up is an offer that a listener has room for; what must be taken is. */
static __always_inline struct decision take_up(const struct request *r, const struct entry *e,
					       const struct listener *here, bool must, __u64 now)
{
	struct load *l = load_number(r->o->index);

	if (!must && l) {
		switch (would_take(r->o, l, here, now)) {
		case TOO_BUSY:
			return decided(ACT_DECLINE, AGENT_PASS_ON_BUSY);
		case LOAD_UNKNOWN:
			return decided(ACT_DECLINE, AGENT_PASS_ON_UNKNOWN_LOAD);
		default:
			break;
		}
	}
	if (conn_accept(r->p, r->o, e, r->sr->sender_be, now))
		return decided(ACT_DELIVER, must ? AGENT_ACCEPT_FORCE : AGENT_ACCEPT_AVAIL);
	if (others_follow(r))
		return decided(ACT_DECLINE, AGENT_PASS_ON_TABLE_FULL);
	return decided(ACT_DELIVER, AGENT_TABLE_FULL);
}

/* may_be_second tells an offer that may follow another one of its flow, which went
 * on from here: the LB marks a SYN that came again; of datagrams nobody knows. */
static __always_inline bool may_be_second(const struct request *r)
{
	if (!others_follow(r))
		return false;
	if (r->p->kind == KIND_UDP)
		return function_of(r) == FN_CONNECT_AVAIL;
	return r->sr->sid.flags & SID_RETRY;
}

/* offered is connectAvail and connectForce. */
static __always_inline struct decision offered(struct xdp_md *ctx, const struct request *r,
					       struct entry e, __u64 now, struct entry *noted)
{
	bool must = function_of(r) == FN_CONNECT_FORCE || !others_follow(r);
	struct listener here;

	if (!opens(r->p) && r->p->kind != KIND_UDP)
		return decided(ACT_DROP, AGENT_DROP_NOT_A_SYN);
	if (repeated(r, e, now, noted))
		return decided(ACT_DELIVER, AGENT_ACCEPT_REPEATED);
	find_listener(ctx, &r->p->t, r->o, &here);
	if (lives(r, &e, &here))
		return decided(ACT_DELIVER, AGENT_ACCEPT_CHALLENGED);
	if (may_be_second(r) && was_refused(r->p, now))
		return decided(ACT_PASS_ON, AGENT_PASS_ON_REFUSED_BEFORE);
	if (!here.found)
		return no_listener(r);
	if (here.full)
		return others_follow(r) ? decided(ACT_DECLINE, AGENT_PASS_ON_FULL)
					: decided(ACT_REFUSE, AGENT_REFUSE_FULL_RESET);
	return take_up(r, &e, &here, must, now);
}

/* agree makes the entry the connection that is here, and signal to an LB that
 * speaks of another one. */
static __always_inline void agree(const struct request *r, struct conn *c, __u16 generation)
{
	if (generation)
		c->generation = generation;
	if (c->generation != named_generation(r)) {
		await(c, r->sr->sender_be, r->p->inserted);
	} else if (c->state == CONN_WAIT) {
		c->state = CONN_DIRECT;
		count(AGENT_ACKNOWLEDGED);
	}
}

#define TRUST_NS 1000000000ULL

/* is_sure tells whether an entry needs no word of the kernel's: both of them know
 * the same connection, it was seen a moment ago and nobody has begun to close it.
 * An older entry may be of a connection that is over, while its five-tuple lives
 * elsewhere, and the LB's entry be as old. */
static __always_inline bool is_sure(const struct entry *e, __u64 now)
{
	return !e->waiting && !(e->c->flags & CONN_CLOSED) && now - e->c->seen_ns < TRUST_NS;
}

/* verified is ackStickiness where only the kernel knows. What is not ours goes
 * back: our stack would reset a connection that lives elsewhere. */
static __always_inline struct decision verified(struct xdp_md *ctx, const struct request *r,
						struct entry e, __u64 now, struct entry *noted)
{
	enum counter why = AGENT_STEERED_ADOPTED;
	struct holding held = {};
	bool same = false;

	if (e.c) {
		same = e.c->generation == named_generation(r);
		why = same ? AGENT_STEERED : AGENT_STEERED_OTHER_GENERATION;
	}
	whose(ctx, r, &e, &held);
	if (!held.mine)
		return same && e.waiting ? decided(ACT_DELIVER, AGENT_STEERED_UNPROVEN)
					 : decided(ACT_GIVE_BACK, AGENT_NOT_MINE);
	*noted = settle(r, e, held.generation ? held.generation : named_generation(r), now);
	if (!noted->c)
		return decided(ACT_DELIVER, AGENT_STEERED);
	agree(r, noted->c, held.generation);
	return decided(ACT_DELIVER, why);
}

/* steered is ackStickiness: the LB says that the flow is here. */
static __always_inline struct decision steered(struct xdp_md *ctx, const struct request *r,
					       struct entry e, __u64 now, struct entry *noted)
{
	if (!e.c || e.c->generation != named_generation(r) || !is_sure(&e, now))
		return verified(ctx, r, e, now, noted);
	agree(r, e.c, 0);
	*noted = e;
	return decided(ACT_DELIVER, AGENT_STEERED);
}

/* unowned is the end of a question to which nobody said yes. Only TCP's stack has
 * an answer to what it does not know. */
static __always_inline struct decision unowned(const struct request *r)
{
	if (others_follow(r))
		return decided(ACT_PASS_ON, AGENT_PASS_ON_NOT_MINE);
	if (r->p->kind == KIND_TCP)
		return decided(ACT_DELIVER, AGENT_UNOWNED);
	return decided(ACT_DROP, AGENT_DROP_UNOWNED);
}

/* recover is recoverStickiness: the LB does not know whose flow this is. */
static __always_inline struct decision recover(struct xdp_md *ctx, const struct request *r,
					       struct entry e, __u64 now, struct entry *noted)
{
	struct holding held;

	whose(ctx, r, &e, &held);
	if (!held.mine)
		return unowned(r);
	*noted = settle(r, e, held.generation, now);
	if (noted->c) {
		if (held.generation)
			noted->c->generation = held.generation;
		await(noted->c, r->sr->sender_be, r->p->inserted);
	}
	return decided(ACT_DELIVER, AGENT_RECOVERED);
}

/* rejected is the end of a connection that another server had first: a RST for
 * the request socket, and for nothing that lives. */
static __always_inline struct decision rejected(struct xdp_md *ctx, const struct request *r,
						struct entry e)
{
	struct holding held = {};

	if (r->p->kind != KIND_TCP || !(r->p->flags & TCP_RST))
		return decided(ACT_DROP, AGENT_DROP_REJECT_STALE);
	if (!e.c || !e.waiting || e.c->generation != named_generation(r))
		return decided(ACT_DROP, AGENT_DROP_REJECT_STALE);
	if (!by_table(r))
		find_owner(ctx, r->p, r->o, &held);
	if (held.established || (held.mine && !held.generation)) /* or in TIME_WAIT */
		return decided(ACT_DROP, AGENT_DROP_REJECT_STALE);
	arrived(e.c);
	alter(r->p->hash, e.at, 0);
	return decided(ACT_DELIVER, AGENT_REJECTED);
}

/* by_function decides by what is known of the flow, and what the packet is to be
 * noted in, if anything. */
static __always_inline struct decision by_function(struct xdp_md *ctx, const struct request *r,
						   struct entry e, __u64 now, struct entry *noted)
{
	switch (function_of(r)) {
	case FN_CONNECT_AVAIL:
	case FN_CONNECT_FORCE:
		return offered(ctx, r, e, now, noted);
	case FN_ACK_STICKINESS:
		return steered(ctx, r, e, now, noted);
	case FN_RECOVER_STICKINESS:
		return recover(ctx, r, e, now, noted);
	case FN_REJECT:
		return rejected(ctx, r, e);
	}
	return decided(ACT_DROP, AGENT_DROP_UNKNOWN_FUNCTION);
}

static __always_inline struct decision decide(struct xdp_md *ctx, const struct request *r)
{
	__u16 fn = function_of(r);
	struct entry noted = {};
	struct decision d;
	__u64 now;

	if ((fn == FN_REJECT || fn == FN_DELIVER) && others_follow(r))
		return decided(ACT_DROP, AGENT_DROP_SEGMENTS_LEFT);
	if (fn == FN_DELIVER)
		return decided(ACT_DELIVER, AGENT_DELIVER);
	now = now_ns();
	d = by_function(ctx, r, conn_find(r->p, now), now, &noted);
	if (noted.c)
		observe(ctx, r, &noted, now);
	if (d.act == ACT_DECLINE)
		note_refusal(r->p, now);
	return d;
}

/* answer finds what the function of our SID asks for. dt is an End.DT6 or DT4 and
 * ends a route (RFC 8986 §4.6), as rj does. */
__noinline int answer(struct xdp_md *ctx, struct sr *sr, struct packet *p, const struct offering *o,
		      struct decision *d)
{
	struct packet facts;
	struct request r = { sr, &facts, o };

	if (!sr || !p || !o || !d)
		return 0;
	facts = *p; /* Linux 6.1 takes no key out of a caller's memory */
	*d = decide(ctx, &r);
	return 0;
}
