/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* act.h: the usual actions on a request: deliver to our stack, pass on to the next segment.
 * give_back.h has the others. */
#pragma once
#include "packet/nexthop.h"
#include "agent/request.h"

/* cannot_rewrite is a function of its own, as it is rare. */
__noinline int cannot_rewrite(enum rewritten how)
{
	switch (how) {
	case HOP_LIMIT_EXCEEDED:
		return verdict(AGENT_DROP_HOP_LIMIT, XDP_DROP);
	case CONGESTED:
		return verdict(AGENT_DROP_CONGESTED, XDP_DROP);
	case NO_HEADROOM:
		return verdict(AGENT_DROP_NO_HEADROOM, XDP_DROP);
	default:
		return verdict(AGENT_DROP_TRUNCATED, XDP_DROP);
	}
}

static __always_inline bool is_mac_set(const __u8 *mac)
{
	return mac[0] | mac[1] | mac[2] | mac[3] | mac[4] | mac[5];
}

/* address_to_vip addresses the frame to the interface that has the VIP, or leaves it to the address, ours or a
 * macvlan's, that it came for (link: both addresses). The source stays: a bridge behind this link learns from
 * that address. */
static __always_inline enum rewritten address_to_vip(struct xdp_md *ctx, const struct offering *o,
						     __u8 family, const __u8 *link)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));

	if (!eth)
		return FRAME_TRUNCATED;
	__builtin_memcpy(eth, link, 2 * ETH_ALEN);
	if (is_mac_set(o->mac))
		__builtin_memcpy(eth->h_dest, o->mac, ETH_ALEN);
	eth->h_proto = bpf_htons(family == 6 ? ETH_P_IPV6 : ETH_P_IP);
	return REWRITTEN;
}

/* deliver removes the segments and leaves the packet to our stack. */
static __always_inline int deliver(struct xdp_md *ctx, struct request *r, enum counter why)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	enum rewritten done;
	__u8 link[2 * ETH_ALEN];

	if (!eth)
		return cannot_rewrite(FRAME_TRUNCATED);
	__builtin_memcpy(link, eth, sizeof(link));
	done = strip(ctx, r->sr, r->p, INWARD);
	if (!done)
		done = address_to_vip(ctx, r->o, r->p->family, link);
	return done ? cannot_rewrite(done) : counted(why, XDP_PASS);
}

/* pass_on moves to the next segment (RFC 8754 §4.3.1.1); the caller has checked that
 * there is any. */
static __always_inline int pass_on(struct xdp_md *ctx, struct request *r, enum counter why)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip = take(&c, sizeof(*ip));
	struct srh *srh = take(&c, sizeof(*srh));
	const struct next_hop *hop;

	if (!eth || !ip || !srh)
		return cannot_rewrite(FRAME_TRUNCATED);
	if (r->sr->hop_limit <= 1)
		return cannot_rewrite(HOP_LIMIT_EXCEEDED);
	hop = next_hop_to(&r->sr->next);
	if (!hop)
		return verdict(AGENT_DROP_NO_NEXT_HOP, XDP_DROP);
	ip->hop_limit--;
	ip->daddr = r->sr->next;
	srh->segments_left--;
	link_header(eth, hop->mac, 6);
	return transmit(why);
}
