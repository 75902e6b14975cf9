/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* rewrite.h: strip takes a packet out of its segments, apply_route puts it on others. Both work on
 * the frame of an XDP program and keep the packet's facts true. */
#pragma once
#include "packet/auth.h"

/* remove_srh removes the SRH between the packet's IP and transport headers. */
static __always_inline enum rewritten remove_srh(struct xdp_md *ctx, const struct sr *sr,
						 struct packet *p, enum direction d)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip)), copy;

	if (!ip)
		return FRAME_TRUNCATED;
	copy = *ip;
	copy.payload_len = bpf_htons(p->length - sizeof(copy));
	copy.nexthdr = p->t.protocol;
	if (p->kind == KIND_TOO_BIG || p->kind == KIND_ECHO)
		copy.nexthdr = IPPROTO_ICMPV6;
	copy.daddr = d == INWARD ? p->t.vip : p->t.client;
	if (bpf_xdp_adjust_head(ctx, sr->srh_bytes))
		return NO_HEADROOM;
	c = frame_at(ctx, ETH_BYTES);
	ip = take(&c, sizeof(*ip));
	if (!ip)
		return FRAME_TRUNCATED;
	*ip = copy;
	p->inserted = 0;
	return REWRITTEN;
}

/* strip takes the packet out of the segments it came with. The frame has no Ethernet header
 * until link_to writes it. */
__noinline int strip(struct xdp_md *ctx, const struct sr *sr, struct packet *p, enum direction d)
{
	enum rewritten done = REWRITTEN;
	int class;

	if (!sr || !p)
		return FRAME_TRUNCATED;
	class = p->class;
	if (p->inserted) {
		done = remove_srh(ctx, sr, p, d);
	} else {
		class = ecn_inward(p->class, sr->class);
		if (class < 0)
			return CONGESTED;
		if (bpf_xdp_adjust_head(ctx, sizeof(struct ipv6hdr) + sr->srh_bytes))
			return NO_HEADROOM;
	}
	p->ip = ETH_BYTES;
	p->l4 = ETH_BYTES + head_bytes(p);
	return done ?: set_class(ctx, p, class);
}

/* link_to addresses the frame to a neighbour. */
static __always_inline enum rewritten link_to(struct xdp_md *ctx, const __u8 *mac, __u8 family)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));

	if (!eth)
		return FRAME_TRUNCATED;
	link_header(eth, mac, family);
	return REWRITTEN;
}

/* write_list writes n segments of the list, from begin on. */
static __always_inline enum rewritten write_list(struct xdp_md *ctx, const struct route *r,
						 __u32 begin, __u32 n)
{
	__u32 at = SRH_AT + sizeof(struct srh);

	begin %= MAX_SEGMENTS;
	if (bpf_xdp_store_bytes(ctx, at, (void *)&r->list[begin], list_bytes(n)))
		return FRAME_TRUNCATED;
	return REWRITTEN;
}

/* add_outer puts an outer header before the packet, with room for an SRH behind it, and
 * addresses the frame. */
static __always_inline enum rewritten add_outer(struct xdp_md *ctx, const struct packet *p,
						__u32 srh_bytes, __be64 tag, const struct sid *to,
						const __u8 *mac, __u8 next)
{
	__u32 bytes = sizeof(struct ipv6hdr) + srh_bytes;
	struct in6_addr from;
	struct ipv6hdr *outer;
	struct ethhdr *eth;
	struct cursor c;
	__u32 label;

	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return NO_HEADROOM;
	c = frame_at(ctx, 0);
	eth = take(&c, sizeof(*eth));
	outer = take(&c, sizeof(*outer));
	if (!eth || !outer)
		return FRAME_TRUNCATED;
	label = flow_label(&p->t); /* not before the call, over which it would need stack */
	from = own_address(tag, label);
	link_header(eth, mac, 6);
	outer_header(outer, &from, (const void *)to, p->class, label, srh_bytes + p->length, next);
	return REWRITTEN;
}

/* protocol_inside is the next header of the header before the packet. */
static __always_inline __u8 protocol_inside(const struct packet *p)
{
	return p->family == 6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
}

/* write_last_segment fills the SRH that add_outer left room for with one segment. */
static __always_inline enum rewritten write_last_segment(struct xdp_md *ctx, const struct packet *p,
							 const struct sid *last)
{
	struct cursor c = frame_at(ctx, SRH_AT);
	struct srh *srh = take(&c, sizeof(*srh));
	struct in6_addr *segment = take(&c, sizeof(*segment));

	if (!srh || !segment)
		return FRAME_TRUNCATED;
	*srh = (struct srh){
		.next_header = protocol_inside(p),
		.length = 2,
		.type = SRH_TYPE,
		.segments_left = 1,
	};
	copy_address(segment, (const void *)last);
	return REWRITTEN;
}

/* encapsulate: RFC 8986 §5.2, H.Encaps.Red. */
static __always_inline enum rewritten encapsulate(struct xdp_md *ctx, const struct packet *p,
						  struct route *r, __be64 tag)
{
	__u32 srh_bytes = route_bytes(r->n, WIRE_ENCAP) - sizeof(struct ipv6hdr);
	__u32 shown = r->n - 1;
	__u8 next = shown ? IPPROTO_ROUTING : protocol_inside(p);
	enum rewritten done;
	struct cursor c;
	struct srh *srh;

	done = add_outer(ctx, p, srh_bytes, tag, segment_of(r, 0), r->mac, next);
	if (done || !shown)
		return done;
	c = frame_at(ctx, SRH_AT);
	srh = take(&c, sizeof(*srh));
	if (!srh)
		return FRAME_TRUNCATED;
	*srh = (struct srh){
		.next_header = protocol_inside(p),
		.length = 2 * shown,
		.type = SRH_TYPE,
		.segments_left = shown,
		.last_entry = shown - 1,
	};
	if (shown == 1) { /* as in most offers */
		struct in6_addr *last = take(&c, sizeof(*last));

		if (!last)
			return FRAME_TRUNCATED;
		copy_address(last, (const void *)segment_of(r, 1));
		return REWRITTEN;
	}
	return write_list(ctx, r, FIRST_SEGMENT - shown, shown);
}

/* insert puts (sender, segments…, destination) into the packet itself. */
static __always_inline enum rewritten insert(struct xdp_md *ctx, const struct packet *p,
					     struct route *r, __be64 tag)
{
	__u32 bytes = route_bytes(r->n, WIRE_INSERT);
	struct in6_addr from = own_address(tag, flow_label(&p->t));
	struct ipv6hdr *ip;
	struct ethhdr *eth;
	struct cursor c;
	struct srh *srh;

	__builtin_memcpy(&r->list[FIRST_SEGMENT + 1], &from, sizeof(from));
	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return NO_HEADROOM;
	c = frame_at(ctx, 0);
	eth = take(&c, sizeof(*eth));
	ip = take(&c, sizeof(*ip));
	srh = take(&c, sizeof(*srh));
	if (!eth || !ip || !srh)
		return FRAME_TRUNCATED;
	link_header(eth, r->mac, 6);
	*srh = (struct srh){
		.next_header = r->own.nexthdr,
		.length = 2 * (r->n + 2),
		.type = SRH_TYPE,
		.segments_left = r->n,
		.last_entry = r->n + 1,
	};
	*ip = r->own;
	copy_address(&ip->daddr, (const void *)segment_of(r, 0));
	ip->nexthdr = IPPROTO_ROUTING;
	ip->payload_len = bpf_htons(p->length - sizeof(*ip) + bytes);
	return write_list(ctx, r, FIRST_SEGMENT - r->n, r->n + 2);
}

/* apply_route puts the packet, which is first in the frame, on its route, signed with key
 * unless that is NULL. */
static __always_inline enum rewritten apply_route(struct xdp_md *ctx, const struct packet *p,
						  struct route *r, const struct key *key)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	__u64 tag = UNTAGGED;
	struct ipv6hdr *ip;

	if (r->n < 1 || r->n >= MAX_IN_ROUTE)
		return FRAME_TRUNCATED;
	r->signer_be = self.locator_be;
	if (r->wire != WIRE_INSERT) {
		__u32 shown = r->n > 1 ? r->n - 1 : 1;

		if (key)
			tag = route_tag(key, p, r, FIRST_SEGMENT + 1 - r->n, shown);
		return encapsulate(ctx, p, r, tag);
	}
	ip = take(&c, sizeof(*ip));
	if (!ip)
		return FRAME_TRUNCATED;
	r->own = *ip;
	copy_address((void *)segment_of(r, r->n), &ip->daddr);
	if (key)
		tag = route_tag(key, p, r, FIRST_SEGMENT - r->n, r->n + 1);
	return insert(ctx, p, r, tag);
}
