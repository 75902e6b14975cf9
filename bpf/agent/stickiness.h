/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* stickiness.h: the decisions on packets of a flow that a server may own: ackStickiness,
 * recoverStickiness and reject. */
#pragma once
#include "agent/clock.h"
#include "agent/ownership.h"

/* stop_signalling ends WAIT: the LB has an entry of the flow. */
static __always_inline void stop_signalling(struct conn *c)
{
	if (c->state == CONN_DIRECT)
		return;
	c->state = CONN_DIRECT;
	count(AGENT_ACKNOWLEDGED);
}

/* sync_generation gives the entry the kernel's generation, if known, and signals to an LB
 * that named another LB. */
static __always_inline void sync_generation(const struct request *r, struct conn *c,
					    __u16 generation)
{
	if (generation)
		c->generation = generation;
	if (!c->lb_be)
		c->lb_be = r->sr->sender_be;
	if (c->generation != named_generation(r))
		signal_to_lb(c, r->sr->sender_be);
	else
		stop_signalling(c);
}

#define TRUST_NS 1000000000ULL

/* is_next is true of the client's next packet, which acknowledges all that went out here: no other
 * connection has both numbers. Of an embryonic entry it ends the handshake: this server's SYN-ACK
 * went out (note_syn_ack), whatever another server sent. */
static __always_inline bool is_next(const struct conn *c, const struct packet *p)
{
	return p->ack == c->next_out && p->seq == c->next_in &&
	       (p->flags & (TCP_ACK | TCP_SYN | TCP_RST)) == TCP_ACK;
}

/* is_sure is true of an entry that needs no lookup in the kernel: LB and agent name the
 * same connection, it was seen a moment ago; if a side has begun to close it, or of an embryonic
 * entry, for its next packet alone. An older entry may be of a connection that has ended,
 * while its five-tuple lives on another server and the LB's entry is as old. */
static __always_inline bool is_sure(const struct conn_entry *e, const struct packet *p, __u64 now)
{
	__u8 flags = e->c->flags;

	if (age_of(e->c, now) >= TRUST_NS)
		return false;
	if (e->embryonic)
		return !(flags & CONN_CLOSED) && e->c->next_out && is_next(e->c, p);
	return !(flags & CONN_CLOSED) || (flags & CONN_NEXT_OUT && is_next(e->c, p));
}

/* verify_steered decides ackStickiness by the kernel's sockets. A packet of no flow of
 * ours goes back: our stack would reset a connection that lives on another server. */
static __always_inline struct decision verify_steered(struct xdp_md *ctx, const struct request *r,
						      struct conn_entry e, __u64 now,
						      struct conn_entry *noted)
{
	enum counter why = AGENT_STEERED_ADOPTED;
	struct holding held = {};
	bool same = false;

	if (e.c && e.c->generation != NO_GENERATION) {
		same = e.c->generation == named_generation(r);
		why = same ? AGENT_STEERED : AGENT_STEERED_OTHER_GENERATION;
	}
	find_holding(ctx, r, &e, &held);
	if (!held.mine) {
		if (!same || !e.embryonic)
			return decided(ACT_GIVE_BACK, AGENT_GIVE_BACK_NOT_MINE);
		conns_may_lack(); /* the stack decides */
		return decided(ACT_DELIVER, AGENT_STEERED_EMBRYONIC);
	}
	*noted = establish(r, e, held.generation ? held.generation : named_generation(r), now);
	if (!noted->c)
		return decided(ACT_DELIVER, AGENT_STEERED);
	sync_generation(r, noted->c, held.generation);
	return decided(ACT_DELIVER, why);
}

/* decide_steered: ackStickiness, the LB has an entry of the flow with this server. */
static __always_inline struct decision decide_steered(struct xdp_md *ctx, const struct request *r,
						      struct conn_entry e, __u64 now,
						      struct conn_entry *noted)
{
	if (!e.c || e.c->generation != named_generation(r) || !is_sure(&e, r->p, now))
		return verify_steered(ctx, r, e, now, noted);
	*noted = establish(r, e, e.c->generation, now);
	if (noted->c)
		stop_signalling(noted->c);
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
						      struct conn_entry e, __u64 now,
						      struct conn_entry *noted)
{
	struct holding held;

	find_holding(ctx, r, &e, &held);
	if (held.cookie)
		conns_may_lack(); /* this or another server's stack takes it */
	if (!held.mine)
		return pass_on_unowned(r);
	*noted = establish(r, e, held.generation, now);
	if (noted->c) {
		if (held.generation)
			noted->c->generation = held.generation;
		signal_to_lb(noted->c, r->sr->sender_be);
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
	load_on_arrival(e.c);
	conn_change(r->p->hash, e.at, 0);
	return decided(ACT_DELIVER, AGENT_REJECTED);
}
