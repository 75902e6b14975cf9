/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* offer.h: the decision on an offer, connectAvail or connectForce. */
#pragma once
#include "agent/accept/accept.h"
#include "agent/listener.h"
#include "agent/ownership.h"
#include "agent/passed_on.h"

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
			signal_to_lb(noted->c, r->sr->sender_be);
		return true;
	}
	if (e.c->generation != generation_of(r->p->seq))
		return false;
	e.c->lb_be = r->sr->sender_be;
	e.c->seen = now >> SEEN_SHIFT;
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

/* would_accept decides an offer that could be passed on. A function of its own: to the
 * verifier each policy and measure is another way out. */
__noinline int would_accept(const struct offering *o, const struct listener *here, __u64 now)
{
	struct load *l = o && here ? load_at(o->index) : NULL;

	return l ? accepts(o, l, load_of(o, here, now)) : WILLING;
}

/* accept_or_pass_on decides an offer for which the listener has room; an offer that must
 * be taken is accepted whatever the load. */
static __always_inline struct decision accept_or_pass_on(const struct request *r,
							 const struct conn_entry *e,
							 const struct listener *here, bool must,
							 __u64 now)
{
	if (!must) {
		switch (would_accept(r->o, here, now)) {
		case TOO_BUSY:
			return decided(ACT_PASS_ON_OFFER, AGENT_PASS_ON_BUSY);
		case LOAD_UNKNOWN:
			return decided(ACT_PASS_ON_OFFER, AGENT_PASS_ON_UNKNOWN_LOAD);
		case POLICY_UNKNOWN:
			return decided(ACT_PASS_ON_OFFER, AGENT_PASS_ON_UNKNOWN_POLICY);
		case WILLING:
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
						    struct conn_entry e, __u64 now,
						    struct conn_entry *noted)
{
	bool must = function_of(r) == FN_CONNECT_FORCE || !has_next_node(r);
	struct listener here;

	if (!opens(r->p) && r->p->kind != KIND_UDP)
		return decided(ACT_DROP, AGENT_DROP_NOT_A_SYN);
	if (is_repeated(r, e, now, noted))
		return decided(ACT_DELIVER, AGENT_ACCEPT_REPEATED);
	if (!recall_listener(r->o, &here, (__u32)e.at >> 31))
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
