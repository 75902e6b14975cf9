/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* srv6.h: the outer header. Encapsulation is H.Encaps.Red (RFC 8986 §5.2): the
 * first segment is only the destination, one segment needs no header at all.
 * Overhead for n segments: 40 for one, 40 + 8 + 16 (n - 1) for more. */
#pragma once
#include "parse.h"
#include "siphash.h"

const volatile struct node self = {};

#define OUTER_HOP_LIMIT 64
#define SRH_TYPE 4 /* RFC 8754 §2 */

struct srh {
	__u8 next_header;
	__u8 length; /* in 8 bytes, the first 8 not counted */
	__u8 type;
	__u8 segments_left;
	__u8 last_entry;
	__u8 flags;
	__be16 tag_be;
};

static __always_inline struct in6_addr sid_address(const struct sid *sid)
{
	struct in6_addr a;

	__builtin_memcpy(&a, sid, sizeof(a));
	return a;
}

static __always_inline struct sid make_sid(__be64 locator_be, enum function fn, __u16 generation)
{
	struct sid sid = {
		.locator_be = locator_be,
		.function_be = bpf_htons(fn),
		.generation_be = bpf_htons(generation),
	};

	return sid;
}

static __always_inline bool is_own(const struct in6_addr *a)
{
	return *(const __be64 *)a == self.locator_be;
}

/* What an SR packet for this node says, after take_sr. */
struct sr {
	struct ipv6hdr *outer;
	struct srh *srh;	  /* NULL when one segment was enough */
	struct in6_addr *next;	  /* the segment after this one, or NULL */
	__u32 overhead;		  /* bytes before the inner header */
	struct sid sid;		  /* this node's own */
	__be64 sender_be;	  /* locator of who encapsulated */
};

enum taken {
	TAKEN = 0,
	MALFORMED_SRH,
	NOT_IPV6_INSIDE,
};

#define TLV_PAD1 0 /* RFC 8754 §2.1.1.1: one byte without a length */

/* A walk over TLVs: offsets in the packet. */
struct walk {
	struct xdp_md *ctx;
	__u32 at;
	__u32 end;
	bool broken;
};

/* next_tlv is the callback of bpf_loop; 1 ends the walk. */
static long next_tlv(__u64 i, struct walk *w)
{
	__u8 tlv[2] = {};

	if (w->at >= w->end)
		return 1;
	w->broken = bpf_xdp_load_bytes(w->ctx, w->at++, &tlv[0], 1);
	if (w->broken || tlv[0] == TLV_PAD1)
		return w->broken;
	w->broken = w->at >= w->end || bpf_xdp_load_bytes(w->ctx, w->at, &tlv[1], 1);
	w->at += 1 + tlv[1];
	return w->broken;
}

/* tlvs_fit tells whether the TLVs between two offsets of the packet end where
 * their header does (RFC 8754 §2.1). */
static __always_inline bool tlvs_fit(struct xdp_md *ctx, __u32 at, __u32 end)
{
	struct walk w = { .ctx = ctx, .at = at, .end = end };

	if (at < end)
		bpf_loop(end - at, next_tlv, &w, 0);
	return !w.broken && w.at == w.end;
}

/* take_sr reads what lies between an outer header addressed to this node and
 * the inner IPv6 packet, by the rules of RFC 8754 §4.3.1.1. */
static __always_inline enum taken take_sr(struct xdp_md *ctx, struct cursor *c,
					  struct ipv6hdr *outer, struct sr *sr)
{
	__u8 next_header = outer->nexthdr;
	__u32 bytes, entries, first_tlv;
	void *rest;

	sr->outer = outer;
	sr->srh = NULL;
	sr->next = NULL;
	sr->overhead = sizeof(*outer);
	__builtin_memcpy(&sr->sid, &outer->daddr, sizeof(sr->sid));
	sr->sender_be = *(const __be64 *)&outer->saddr;
	if (next_header == IPPROTO_ROUTING) {
		sr->srh = take(c, sizeof(*sr->srh));
		if (!sr->srh)
			return MALFORMED_SRH;
		bytes = sr->srh->length * 8;
		entries = sr->srh->length / 2;
		if (sr->srh->type != SRH_TYPE || bytes + 8 > bpf_ntohs(outer->payload_len))
			return MALFORMED_SRH;
		if (sr->srh->last_entry + 1 > entries ||
		    sr->srh->segments_left > sr->srh->last_entry + 1)
			return MALFORMED_SRH;
		rest = c->pos;
		if (!take(c, bytes))
			return MALFORMED_SRH;
		if (sr->srh->segments_left) {
			sr->next = rest + (sr->srh->segments_left - 1) * sizeof(*sr->next);
			if ((void *)(sr->next + 1) > c->end)
				return MALFORMED_SRH;
		}
		sr->overhead += 8 + bytes;
		first_tlv = sizeof(struct ethhdr) + sizeof(*outer) + 8 +
			    (sr->srh->last_entry + 1) * sizeof(struct in6_addr);
		if (!tlvs_fit(ctx, first_tlv, sizeof(struct ethhdr) + sr->overhead))
			return MALFORMED_SRH;
		next_header = sr->srh->next_header;
	}
	return next_header == IPPROTO_IPV6 ? TAKEN : NOT_IPV6_INSIDE;
}

/* take_inner returns the packet inside, or NULL if it is not whole. */
static __always_inline struct ipv6hdr *take_inner(struct cursor *c, const struct sr *sr)
{
	struct ipv6hdr *ip = take_ipv6(c);
	__u32 room = bpf_ntohs(sr->outer->payload_len) + sizeof(*ip);

	if (!ip || sr->overhead + sizeof(*ip) + bpf_ntohs(ip->payload_len) > room)
		return NULL;
	return ip;
}

static __always_inline __u8 traffic_class(const struct ipv6hdr *ip)
{
	return ip->priority << 4 | ip->flow_lbl[0] >> 4;
}

static __always_inline void set_traffic_class(struct ipv6hdr *ip, __u8 class)
{
	ip->priority = class >> 4;
	ip->flow_lbl[0] = (ip->flow_lbl[0] & 0x0f) | class << 4;
}

/* outer_header fills an outer header: label of the flow, DSCP and ECN of the
 * inner packet (RFC 6040 §4.1, normal mode: copied). */
static __always_inline void outer_header(struct ipv6hdr *ip, const struct in6_addr *dst,
					 __u8 class, __u32 label, __u16 payload, __u8 next)
{
	struct sid src = { .locator_be = self.locator_be };
	__be32 first = bpf_htonl(6U << 28 | (__u32)class << 20 | label);

	__builtin_memcpy(ip, &first, sizeof(first));
	ip->payload_len = bpf_htons(payload);
	ip->nexthdr = next;
	ip->hop_limit = OUTER_HOP_LIMIT;
	ip->saddr = sid_address(&src);
	ip->saddr.s6_addr[15] = UNTAGGED;
	ip->daddr = *dst;
}

/* ecn_inward gives the inner packet what the outer one met on its way
 * (RFC 6040 §4.2, figure 4), or false: congestion that the inner packet cannot
 * express, so it must be dropped. */
static __always_inline bool ecn_inward(struct ipv6hdr *inner, const struct ipv6hdr *outer)
{
	__u8 class = traffic_class(inner);
	__u8 in = class & 3, out = traffic_class(outer) & 3;

	if (out == 3 && in == 0)
		return false;
	if (out == 3 || (out == 1 && in == 2))
		set_traffic_class(inner, (class & ~3) | out);
	return true;
}

/* own_mac copies through volatile reads: a cast would let the compiler take the
 * zeros that the constant has before it is loaded. */
static __always_inline void own_mac(__u8 *to)
{
	for (int i = 0; i < ETH_ALEN; i++)
		to[i] = self.mac[i];
}

/* link_header addresses a frame that this node sends. */
static __always_inline void link_header(struct ethhdr *eth, const __u8 *to)
{
	__builtin_memcpy(eth->h_dest, to, ETH_ALEN);
	own_mac(eth->h_source);
	eth->h_proto = bpf_htons(ETH_P_IPV6);
}
