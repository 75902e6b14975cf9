/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* request.h: a packet for a SID of the agent, parsed, and the decisions that
 * there are. act.h carries them out. */
#pragma once
#include "packet/auth.h"
#include "packet/suspects.h"
#include "agent/flow.h"
#include "packet/scratch.h"

/* not_for_us returns why the kernel gets the frame untouched, or COUNTERS. */
static __always_inline enum counter not_for_us(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip = take(&c, sizeof(*ip));

	if (!eth || !ip || eth->h_proto != bpf_htons(ETH_P_IPV6) || ip->version != 6)
		return AGENT_PASS_NOT_IPV6;
	if (!is_own(&ip->daddr))
		return is_to_us(eth) ? AGENT_PASS_NOT_SID : AGENT_PASS_OTHER_HOST;
	if (!is_taken(eth, true))
		return AGENT_PASS_OTHER_HOST;
	return ((const struct sid *)&ip->daddr)->function_be ? COUNTERS : AGENT_PASS_OWN_ADDRESS;
}

/* An SR packet, the packet inside it, and its service. */
struct request {
	struct sr *sr;
	struct packet *p;
	const struct offering *o;
};

enum act {
	ACT_DELIVER,
	ACT_PASS_ON,	   /* to the next segment */
	ACT_PASS_ON_OFFER, /* the same, and remember it */
	ACT_REFUSE,	   /* last candidate, its accept queue is full */
	ACT_GIVE_BACK,	   /* to the LB, in nm */
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

/* named_generation is the connection's generation in the SID's argument. */
static __always_inline __u16 named_generation(const struct request *r)
{
	return bpf_ntohs(r->sr->sid.generation_be);
}

/* has_next_node is false at the last node of the route: the last segment of an inserted
 * route is the packet's own destination. */
static __always_inline bool has_next_node(const struct request *r)
{
	return r->sr->left > r->p->inserted;
}

/* is_signed is true of the functions that may change state. */
static __always_inline bool is_signed(__u16 fn)
{
	return fn == FN_CONNECT_AVAIL || fn == FN_CONNECT_FORCE || fn == FN_RECOVER_STICKINESS ||
	       fn == FN_REJECT;
}

/* is_authentic checks the tag, if the farm has a key and the function needs a tag. */
static __always_inline bool is_authentic(struct xdp_md *ctx, const struct request *r)
{
	struct scratch *scr = scratch();
	const struct key *key;

	if (!is_signed(function_of(r)) || !signing_key())
		return true;
	key = farm_key(r->sr->sid.key_id);
	return key && scr && authentic(ctx, r->sr, r->p, key, &scr->route);
}

static __always_inline enum counter cannot_read(enum opened how)
{
	switch (how) {
	case FROM_OUTSIDE:
		return AGENT_DROP_OUTSIDE;
	case WITH_TLVS:
		return AGENT_DROP_TLV;
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

/* read_request fills r from a packet for a SID of ours. Returns COUNTERS, or why the
 * packet is dropped. A fragment has no ports: dt carries it, by the hash of its addresses. */
static __always_inline enum counter read_request(struct xdp_md *ctx, struct request *r)
{
	enum opened how = open_sr(ctx, r->sr, r->p, INWARD);

	if (how)
		return cannot_read(how);
	r->o = offering_of(r->p);
	if (r->o && r->p->inserted != (r->o->wire == WIRE_INSERT && !r->p->options))
		return AGENT_DROP_WRONG_WIRE;
	if (r->p->kind == KIND_FRAGMENT && function_of(r) == FN_DELIVER)
		r->o = vip_of(r->p);
	if (!r->o)
		return AGENT_DROP_NOT_OUR_SERVICE;
	if (is_authentic(ctx, r))
		return COUNTERS;
	note_suspect(r->sr->sender_be);
	return AGENT_DROP_BAD_TAG;
}
