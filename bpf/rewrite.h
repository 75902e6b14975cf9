/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* rewrite.h: the three changes that a packet on its way meets: it comes out of
 * its segments (strip), it goes into others (put_on), and its own header notes
 * the hop (age). All work on the frame of an XDP program; the packet's facts
 * stay true. */
#pragma once
#include "auth.h"

enum rewritten {
	REWRITTEN,
	NO_ROOM,    /* the driver has none before the frame */
	NOT_WHOLE,  /* the frame is shorter than its facts */
	CONGESTED,  /* marked so on its way, and it cannot say so itself (RFC 6040) */
	HOPS_SPENT,
};

/* replace_word updates an Internet checksum for one 16-bit word (RFC 1624). */
static __always_inline __sum16 replace_word(__sum16 check, __u16 old, __u16 new)
{
	__u32 sum = (__u16)~check + (__u16)~old + new;

	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

/* folded is the Internet checksum of a sum (RFC 1071). */
static __always_inline __sum16 folded(__s64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~((sum & 0xffff) + (sum >> 16));
}

static __always_inline void set_class6(struct ipv6hdr *ip, __u8 class)
{
	ip->priority = class >> 4;
	ip->flow_lbl[0] = (ip->flow_lbl[0] & 0x0f) | class << 4;
}

/* age notes a hop and a traffic class in the packet's own header, which is the
 * first of the frame. */
static __always_inline enum rewritten age(struct xdp_md *ctx, struct packet *p, int hops, __u8 class)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	__be16 *word;

	if (hops && p->hops <= hops)
		return HOPS_SPENT;
	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return NOT_WHOLE;
		ip->hop_limit -= hops;
		set_class6(ip, class);
	} else {
		struct iphdr *ip = take(&c, sizeof(*ip));
		__u16 first, ttl;

		if (!ip)
			return NOT_WHOLE;
		word = (void *)ip;
		first = word[0];
		ip->tos = class;
		ip->check = replace_word(ip->check, first, word[0]);
		ttl = word[4];
		ip->ttl -= hops;
		ip->check = replace_word(ip->check, ttl, word[4]);
	}
	p->hops -= hops;
	p->class = class;
	return REWRITTEN;
}

/* take_srh_out removes the SRH between the packet's IP and transport headers. */
static __always_inline enum rewritten take_srh_out(struct xdp_md *ctx, const struct sr *sr,
						   struct packet *p, enum direction d)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip)), copy;

	if (!ip)
		return NOT_WHOLE;
	copy = *ip;
	copy.payload_len = bpf_htons(p->length - sizeof(copy));
	copy.nexthdr = p->t.protocol;
	if (p->kind == KIND_TOO_BIG || p->kind == KIND_ECHO)
		copy.nexthdr = IPPROTO_ICMPV6;
	copy.daddr = d == INWARD ? p->t.vip : p->t.client;
	if (bpf_xdp_adjust_head(ctx, sr->srh_bytes))
		return NO_ROOM;
	c = frame_at(ctx, ETH_BYTES);
	ip = take(&c, sizeof(*ip));
	if (!ip)
		return NOT_WHOLE;
	*ip = copy;
	p->inserted = 0;
	return REWRITTEN;
}

/* strip takes the packet out of the segments it came with. The frame has no
 * Ethernet header after it until link_to gives it one. */
__noinline int strip(struct xdp_md *ctx, const struct sr *sr, struct packet *p, enum direction d)
{
	enum rewritten done = REWRITTEN;
	int class;

	if (!sr || !p)
		return NOT_WHOLE;
	class = p->class;
	if (p->inserted) {
		done = take_srh_out(ctx, sr, p, d);
	} else {
		class = ecn_inward(p->class, sr->class);
		if (class < 0)
			return CONGESTED;
		if (bpf_xdp_adjust_head(ctx, sizeof(struct ipv6hdr) + sr->srh_bytes))
			return NO_ROOM;
	}
	p->ip = ETH_BYTES;
	p->l4 = ETH_BYTES + (p->family == 6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	return done ?: age(ctx, p, 0, class);
}

/* link_to addresses the frame to a neighbour. */
static __always_inline enum rewritten link_to(struct xdp_md *ctx, const __u8 *mac, __u8 family)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));

	if (!eth)
		return NOT_WHOLE;
	link_header(eth, mac, family);
	return REWRITTEN;
}

/* Where a packet goes: its segments, first to last, and the neighbour that is
 * towards the first one. */
struct route {
	__u32 n;
	__u8 mac[6];
	__u8 wire; /* enum wire */
	__u8 zero;
	struct sid segment[MAX_SEGMENTS];
};

/* route_bytes is what n segments cost (docs/wire.md). */
static __always_inline __u32 route_bytes(__u32 n, __u8 wire)
{
	if (wire == WIRE_INSERT)
		return sizeof(struct srh) + (n + 2) * sizeof(struct sid);
	if (n == 1)
		return sizeof(struct ipv6hdr);
	return sizeof(struct ipv6hdr) + sizeof(struct srh) + (n - 1) * sizeof(struct sid);
}

/* A route on its way into a tag: segments, last first. */
struct signing_route {
	struct sip s;
	const struct route *r;
};

/* sign_segment is the callback of bpf_loop. */
static long sign_segment(__u64 i, struct signing_route *w)
{
	tag_segment(&w->s, &w->r->segment[(w->r->n - 1 - i) % MAX_SEGMENTS]);
	return 0;
}

/* route_tag signs what the receivers will see of the segments. */
static __always_inline __be64 route_tag(const struct key *key, const struct tuple *t,
					const struct route *r, __u32 shown, const struct in6_addr *last)
{
	struct signing_route w = { .r = r };

	w.s = tag_start(key, t, self.locator_be);
	if (last)
		tag_segment(&w.s, last);
	bpf_loop(shown, sign_segment, &w, 0);
	return tag_end(&w.s, shown + (last ? 1 : 0));
}

/* write_list writes the route's segments as an SRH has them, last first. */
static __always_inline enum rewritten write_list(struct xdp_md *ctx, __u32 at,
						 const struct route *r, __u32 n)
{
	for (__u32 i = 0; i < MAX_SEGMENTS && i < n; i++) {
		struct sid entry = r->segment[(r->n - 1 - i) % MAX_SEGMENTS];

		if (bpf_xdp_store_bytes(ctx, at + i * sizeof(entry), &entry, sizeof(entry)))
			return NOT_WHOLE;
	}
	return REWRITTEN;
}

/* encapsulate: RFC 8986 §5.2, H.Encaps.Red. */
static __always_inline enum rewritten encapsulate(struct xdp_md *ctx, const struct packet *p,
						  const struct route *r, const struct key *key)
{
	__u32 bytes = route_bytes(r->n, r->wire);
	__u8 inside = p->family == 6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	struct in6_addr from, to = sid_address(&r->segment[0]);
	struct ipv6hdr *outer;
	struct srh *srh;
	struct cursor c;

	from = own_address(key ? route_tag(key, &p->t, r, r->n > 1 ? r->n - 1 : 1, NULL)
			       : bpf_cpu_to_be64(UNTAGGED));
	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return NO_ROOM;
	c = frame_at(ctx, ETH_BYTES);
	outer = take(&c, sizeof(*outer));
	if (!outer)
		return NOT_WHOLE;
	outer_header(outer, &from, &to, p->class, flow_label(&p->t),
		     bytes - sizeof(*outer) + p->length, r->n > 1 ? IPPROTO_ROUTING : inside);
	if (r->n == 1)
		return REWRITTEN;
	srh = take(&c, sizeof(*srh));
	if (!srh)
		return NOT_WHOLE;
	*srh = (struct srh){
		.next_header = inside,
		.length = 2 * (r->n - 1),
		.type = SRH_TYPE,
		.segments_left = r->n - 1,
		.last_entry = r->n - 2,
	};
	return write_list(ctx, SRH_AT + sizeof(*srh), r, r->n - 1);
}

/* insert puts (sender, segments…, destination) into the packet itself. */
static __always_inline enum rewritten insert(struct xdp_md *ctx, const struct packet *p,
					     const struct route *r, const struct key *key)
{
	__u32 bytes = route_bytes(r->n, r->wire);
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip)), copy;
	__u32 list = SRH_AT + sizeof(struct srh);
	struct in6_addr first;
	struct srh *srh;

	if (!ip)
		return NOT_WHOLE;
	copy = *ip;
	first = own_address(key ? route_tag(key, &p->t, r, r->n, &copy.daddr)
				: bpf_cpu_to_be64(UNTAGGED));
	if (bpf_xdp_adjust_head(ctx, -(int)bytes))
		return NO_ROOM;
	c = frame_at(ctx, ETH_BYTES);
	ip = take(&c, sizeof(*ip));
	srh = take(&c, sizeof(*srh));
	if (!ip || !srh)
		return NOT_WHOLE;
	*srh = (struct srh){
		.next_header = copy.nexthdr,
		.length = 2 * (r->n + 2),
		.type = SRH_TYPE,
		.segments_left = r->n,
		.last_entry = r->n + 1,
	};
	*ip = copy;
	ip->daddr = sid_address(&r->segment[0]);
	ip->nexthdr = IPPROTO_ROUTING;
	ip->payload_len = bpf_htons(p->length - sizeof(*ip) + bytes);
	if (bpf_xdp_store_bytes(ctx, list, &copy.daddr, sizeof(copy.daddr)) ||
	    write_list(ctx, list + sizeof(first), r, r->n))
		return NOT_WHOLE;
	if (bpf_xdp_store_bytes(ctx, list + (r->n + 1) * sizeof(first), &first, sizeof(first)))
		return NOT_WHOLE;
	return REWRITTEN;
}

/* put_on sends the packet, the first thing in the frame, on its route; key signs
 * it, or is NULL. A function of its own for the verifier. */
__noinline int put_on(struct xdp_md *ctx, struct packet *p, const struct route *r,
		      const struct key *key)
{
	enum rewritten done;

	if (!p || !r || r->n < 1 || r->n > MAX_SEGMENTS - 2)
		return NOT_WHOLE;
	done = r->wire == WIRE_INSERT ? insert(ctx, p, r, key) : encapsulate(ctx, p, r, key);
	return done ?: link_to(ctx, r->mac, 6);
}
