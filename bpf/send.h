/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* send.h: how the LB sends: into the SR domain along a route, and out of it to
 * the client. */
#pragma once
#include "count.h"
#include "nexthop.h"
#include "service.h"
#include "srv6.h"

/* Where a client's packet goes: its segments, first to last. */
struct route {
	const struct server *first;
	__u32 n;
	struct sid segment[MAX_CHOICES];
};

/* send_out encapsulates towards r->first and transmits. */
static __always_inline int send_out(struct xdp_md *ctx, struct ipv6hdr *inner, const struct tuple *t,
				    const struct route *r, enum counter why)
{
	__u32 extra = r->n > 1 ? 8 + 16 * (r->n - 1) : 0;
	__u32 length = sizeof(*inner) + bpf_ntohs(inner->payload_len);
	__u8 class = traffic_class(inner), mac[ETH_ALEN];
	struct in6_addr to = sid_address(&r->segment[0]);
	struct in6_addr *list;
	struct ipv6hdr *outer;
	struct ethhdr *eth;
	struct cursor c;
	struct srh *srh;

	if (!r->first->ready)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (inner->hop_limit <= 1)
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	if (length + extra + sizeof(*outer) > self.mtu)
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	__builtin_memcpy(mac, r->first->mac, ETH_ALEN);
	inner->hop_limit--; /* RFC 2473 §3.1: forwarded into the tunnel */
	if (bpf_xdp_adjust_head(ctx, -(int)(sizeof(*outer) + extra)))
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);

	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	outer = take(&c, sizeof(*outer));
	if (!eth || !outer)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	link_header(eth, mac);
	outer_header(outer, &to, class, flow_label(t), length + extra,
		     extra ? IPPROTO_ROUTING : IPPROTO_IPV6);
	if (!extra)
		return transmit(why);

	srh = take(&c, sizeof(*srh));
	if (!srh)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	*srh = (struct srh){
		.next_header = IPPROTO_IPV6,
		.length = 2 * (r->n - 1),
		.type = SRH_TYPE,
		.segments_left = r->n - 1,
		.last_entry = r->n - 2,
	};
	for (__u32 i = MAX_CHOICES - 1; i > 0; i--) { /* last segment first */
		if (i >= r->n)
			continue;
		list = take(&c, sizeof(*list));
		if (!list)
			return verdict(LB_DROP_TRUNCATED, XDP_DROP);
		*list = sid_address(&r->segment[i]);
	}
	return transmit(why);
}

/* unwrap strips what a server put around its packet and sends it to the client. */
static __always_inline int unwrap(struct xdp_md *ctx, const struct sr *sr, struct ipv6hdr *inner,
				  enum counter why)
{
	const struct next_hop *hop;
	struct in6_addr client = inner->daddr;
	struct ethhdr *eth;
	struct cursor c;

	if (inner->hop_limit <= 1)
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	if (!ecn_inward(inner, sr->outer))
		return verdict(LB_DROP_CONGESTED, XDP_DROP);
	hop = next_hop_to(&client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	inner->hop_limit--;
	if (bpf_xdp_adjust_head(ctx, sr->overhead))
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	if (!eth)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	link_header(eth, hop->mac);
	return transmit(why);
}
