/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* request.h: a packet for one of the agent's SIDs, opened up, and what may be
 * decided on it. Each action stands once (act.h). */
#pragma once
#include "packet/auth.h"
#include "agent/conn.h"
#include "core/domain.h"
#include "packet/scratch.h"

/* An SR packet with what it carries, and its service. */
struct request {
	struct sr *sr;
	struct packet *p;
	const struct offering *o;
};

/* What is to be done with a request, and why. */
enum act {
	ACT_DELIVER,
	ACT_PASS_ON,   /* to the next segment */
	ACT_DECLINE,   /* the same with an offer, which is remembered */
	ACT_REFUSE,    /* a last candidate with a full accept queue */
	ACT_GIVE_BACK, /* to the LB: not mine */
	ACT_DROP,
};

struct decision {
	enum act act;
	enum counter why;
};

static __always_inline struct decision decided(enum act act, enum counter why)
{
	return (struct decision){ act, why };
}

static __always_inline __u16 function_of(const struct request *r)
{
	return bpf_ntohs(r->sr->sid.function_be);
}

/* named_generation is the connection that the LB speaks of. */
static __always_inline __u16 named_generation(const struct request *r)
{
	return bpf_ntohs(r->sr->sid.generation_be);
}

/* others_follow tells whether the route goes on to another node: the last
 * segment of an inserted one is the packet's own destination. */
static __always_inline bool others_follow(const struct request *r)
{
	return r->sr->left > r->p->inserted;
}

/* is_signed tells the functions that may change state. */
static __always_inline bool is_signed(__u16 fn)
{
	return fn == FN_CONNECT_AVAIL || fn == FN_CONNECT_FORCE || fn == FN_RECOVER_STICKINESS ||
	       fn == FN_REJECT;
}

/* is_believed tells whether the request is from an LB that has the farm's key, if
 * there is one. */
static __always_inline bool is_believed(struct xdp_md *ctx, const struct request *r)
{
	struct scratch *scr = scratch();
	const struct key *key;

	if (!is_signed(function_of(r)) || !signing_key())
		return true;
	key = farm_key(r->sr->sid.key_id);
	return key && scr && authentic(ctx, r->sr, r->p, key, &scr->route);
}

static __always_inline enum counter cannot_open(enum opened how)
{
	switch (how) {
	case MALFORMED_SRH:
		return AGENT_DROP_MALFORMED_SRH;
	case MALFORMED_TRANSPORT:
		return AGENT_DROP_MALFORMED_TRANSPORT;
	case NOTHING_INSIDE:
		return AGENT_DROP_NOTHING_INSIDE;
	default:
		return AGENT_DROP_TRUNCATED;
	}
}

/* open_up completes r from a packet for one of our SIDs, or returns why not.
 * A fragment shows no port: dt brings it here by the hash of its addresses. */
static __always_inline enum counter open_up(struct xdp_md *ctx, struct request *r)
{
	enum opened how = open_sr(ctx, r->sr, r->p, INWARD);

	if (how)
		return cannot_open(how);
	if (!is_inside(r->sr->sender_be))
		return AGENT_DROP_OUTSIDE;
	r->o = offering_of(r->p);
	if (r->p->kind == KIND_FRAGMENT && function_of(r) == FN_DELIVER)
		r->o = vip_of(r->p);
	if (!r->o)
		return AGENT_DROP_NOT_OUR_SERVICE;
	return is_believed(ctx, r) ? COUNTERS : AGENT_DROP_BAD_TAG;
}
