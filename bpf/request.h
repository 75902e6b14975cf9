/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* request.h: a packet for one of the agent's SIDs, opened up, and what may be
 * decided on it: deliver, pass on, refuse or drop. Each action stands once. */
#pragma once
#include "conn.h"
#include "count.h"
#include "reset.h"
#include "srv6.h"

/* An SR packet with what it carries. */
struct request {
	struct sr sr;
	struct segment s;
	struct tuple t;
	const struct offering *o;
};

/* open_up completes r from a packet for one of our SIDs, or returns why not. */
static __always_inline enum counter open_up(struct xdp_md *ctx, struct cursor *c,
					    struct ipv6hdr *outer, struct request *r)
{
	switch (take_sr(ctx, c, outer, &r->sr)) {
	case MALFORMED_SRH:
		return AGENT_DROP_MALFORMED_SRH;
	case NOT_IPV6_INSIDE:
		return AGENT_DROP_NOT_IPV6_INSIDE;
	default:
		break;
	}
	r->s.ip = take_inner(c, &r->sr);
	if (!r->s.ip)
		return AGENT_DROP_TRUNCATED;
	if (r->s.ip->nexthdr != IPPROTO_TCP)
		return AGENT_DROP_NOT_OUR_SERVICE;
	if (!take_tcp(c, &r->s))
		return AGENT_DROP_MALFORMED_TCP;
	r->o = offering_at(&r->s.ip->daddr, r->s.tcp->dest);
	if (!r->o)
		return AGENT_DROP_NOT_OUR_SERVICE;
	r->t = tuple_inward(&r->s);
	return COUNTERS;
}

/* What is to be done with a request, and why: every decision is one of these,
 * so that each action stands once. */
enum act {
	ACT_DELIVER,
	ACT_PASS_ON,
	ACT_REFUSE, /* a last candidate with a full accept queue */
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
