/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sides.h: the side that a packet is of, by the link that it came by (RFC 2827, RFC 3704). From the link
 * to the client network come sources of its prefixes alone; from the link to the world none of those, nor
 * of the addresses that functions give to flows. A packet with a source of the other side is dropped
 * before it makes any state. An entry remembers which of its sides were looked at, so most packets are
 * not looked at again. */
#pragma once
#include "edge/instances.h"
#include "edge/scratch.h"

/* is_forged_inward: a packet of the world has a source of the edge. That of an ICMP error is not in its
 * tuple. */
static __always_inline bool is_forged_inward(struct xdp_md *ctx, const struct edge_scratch *s)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct in6_addr from = {};

	if (s->side != SIDE_WORLD || s->between)
		return false;
	if (s->packet.family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (ip)
			copy_address(&from, &ip->saddr);
	} else {
		struct iphdr *ip = take(&c, sizeof(*ip));

		if (ip)
			copy_mapped(&from, ip->saddr);
	}
	return edge_service_at(&from) >= 0;
}

/* find_version notes that the packet is of its side by this version of the prefixes. A packet to another
 * service has none: it comes back behind its chain, to meet that of the other service. Nor has an ICMP
 * error, whose source is a router's. */
static __always_inline void find_version(struct edge_scratch *s, __u32 version)
{
	if (s->side == SIDE_CLIENTS && edge_service_at(&s->packet.t.vip) >= 0)
		s->way |= WAY_RETURNS;
	else if (!s->between && s->packet.kind != KIND_ERROR)
		s->version = version;
}

/* vouch lets the flow's next packets from this side pass without a look at their source. */
static __always_inline void vouch(const struct edge_scratch *s, struct edge_flow *f)
{
	if (s->version && s->side < SIDES && f->vouched[s->side] != s->version)
		f->vouched[s->side] = s->version;
}

/* turn_inward makes a packet behind the chain of its source's service a packet to the chain of its
 * destination's. */
static __always_inline void turn_inward(struct edge_scratch *s)
{
	set_way(s, WAY_INWARD);
	s->between = 1;
	reverse(&s->packet.t);
	s->packet.hash = edge_hash(&s->packet);
}
