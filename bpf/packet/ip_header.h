/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* ip_header.h: changes of a packet's own IP header: its traffic class, its hop limit, and the
 * checksums that follow. They keep the packet's facts true. */
#pragma once
#include "packet/parse.h"

#define OUTER_HOP_LIMIT 64
#define TCP_OPTIONS 40 /* bytes of a segment at most */
#define ETH_BYTES ((__u32)sizeof(struct ethhdr))
#define LINK_ADDRESS 0xffffffffffffULL /* in the first eight bytes of a frame */

enum rewritten {
	REWRITTEN,
	NO_HEADROOM,	 /* the driver left none before the frame */
	FRAME_TRUNCATED, /* the frame ends before its facts do */
	CONGESTED,	 /* CE was set on the way, and the packet cannot carry it (RFC 6040) */
	HOP_LIMIT_EXCEEDED,
};

#define ECN_CE 3
#define ECN_ECT1 1
#define ECN_ECT0 2

/* ecn_inward is the class of a packet that leaves a tunnel: it gets the congestion marks of the
 * outer header (RFC 6040 §4.2, figure 4). Negative: a mark that the packet cannot carry, so it
 * must be dropped. */
static __always_inline int ecn_inward(__u8 inner, __u8 outer)
{
	__u8 in = inner & 3, out = outer & 3;

	if (out == ECN_CE && !in)
		return -1;
	if (out == ECN_CE || (out == ECN_ECT1 && in == ECN_ECT0))
		return (inner & ~3) | out;
	return inner;
}

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

/* outer_header fills an outer IPv6 header: label of the flow, DSCP and ECN of the packet inside
 * (RFC 6040 §4.1, normal mode: copied). */
static __always_inline void outer_header(struct ipv6hdr *ip, const struct in6_addr *from,
					 const struct in6_addr *to, __u8 class, __u32 label,
					 __u16 payload, __u8 next)
{
	__be32 first = bpf_htonl(6U << 28 | (__u32) class << 20 | label);

	*(__be32 *)ip = first;
	ip->payload_len = bpf_htons(payload);
	ip->nexthdr = next;
	ip->hop_limit = OUTER_HOP_LIMIT;
	copy_address(&ip->saddr, from);
	copy_address(&ip->daddr, to);
}

static __always_inline void set_class6(struct ipv6hdr *ip, __u8 class)
{
	ip->priority = class >> 4;
	ip->flow_lbl[0] = (ip->flow_lbl[0] & 0x0f) | class << 4;
}

/* set_class sets the traffic class of the packet, which is first in the frame. */
static __always_inline enum rewritten set_class(struct xdp_md *ctx, struct packet *p, __u8 class)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	__u16 first;

	if (class == p->class)
		return REWRITTEN;
	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return FRAME_TRUNCATED;
		set_class6(ip, class);
	} else {
		struct iphdr *ip = take(&c, sizeof(*ip));
		__u16 *word = (void *)ip;

		if (!ip)
			return FRAME_TRUNCATED;
		first = word[0];
		ip->tos = class;
		ip->check = replace_word(ip->check, first, word[0]);
	}
	p->class = class;
	return REWRITTEN;
}

/* lower_hop decrements the hop limit (RFC 8200 §3) or TTL, above 1, of the packet at a cursor. */
static __always_inline enum rewritten lower_hop(struct cursor c, struct packet *p)
{
	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return FRAME_TRUNCATED;
		ip->hop_limit--;
	} else {
		struct iphdr *ip = take(&c, sizeof(*ip));
		__u16 *word = (void *)ip, ttl;

		if (!ip)
			return FRAME_TRUNCATED;
		ttl = word[4];
		ip->ttl--;
		ip->check = replace_word(ip->check, ttl, word[4]);
	}
	p->hop_limit--;
	return REWRITTEN;
}

static __always_inline enum rewritten count_hop(struct cursor c, struct packet *p)
{
	return p->hop_limit <= 1 ? HOP_LIMIT_EXCEEDED : lower_hop(c, p);
}

static __always_inline enum rewritten dec_hop_limit(struct xdp_md *ctx, struct packet *p)
{
	return count_hop(frame_at(ctx, ETH_BYTES), p);
}
