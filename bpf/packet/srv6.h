/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* srv6.h: segment identifiers, and packets that carry some. Two ways to carry them
 * (docs/design/wire.md):
 *   encap   outer IPv6, SRH without the first segment (RFC 8986 §5.2), packet
 *   insert  the client's IPv6 header, SRH with all segments from the sender to
 *           the packet's own destination, transport header (6LB §II) */
#pragma once
#include "packet/options.h"
#include "packet/ip_header.h"
#include "packet/link_addresses.h"
#include "core/domain.h"
#include "core/siphash.h"

/* self is no constant: the link's address and MTU change while the programs run. Its section is
 * a map of its own, which the daemon writes. */
struct node self SEC(".data.self") = {};

#define SRH_TYPE 4					   /* RFC 8754 §2 */
#define SRH_AT (ETH_BYTES + (__u32)sizeof(struct ipv6hdr)) /* in the frame */

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

static __always_inline __be64 upper_half(const struct in6_addr *a)
{
	return *(const __be64 *)a;
}

static __always_inline __be64 lower_half(const struct in6_addr *a)
{
	return *((const __be64 *)a + 1);
}

static __always_inline bool is_own(const struct in6_addr *a)
{
	return upper_half(a) == self.locator_be;
}

/* The facts of an SR packet for this node. Offsets are in the frame. */
struct sr {
	struct sid sid;	       /* this node's own */
	struct in6_addr next;  /* the segment after it, if any are left */
	__be64 sender_be;      /* locator of the node that put the segments on */
	__be64 tag;	       /* the interface identifier beside it */
	__u32 srh_bytes;       /* 0: one segment, without an SRH */
	__u32 signed_segments; /* those of the SRH that the tag covers */
	__u32 left;
	__u8 class; /* of the outer header */
	__u8 hop_limit;
	__u8 with_tlvs; /* bytes follow the segment list */
	__u8 zero;
};

/* overhead is the number of bytes before the packet inside. */
static __always_inline __u32 overhead(const struct sr *sr, const struct packet *p)
{
	return p->inserted ? sr->srh_bytes : sizeof(struct ipv6hdr) + sr->srh_bytes;
}

enum opened {
	OPENED,
	FROM_OUTSIDE, /* of the SR domain */
	WITH_TLVS,    /* no node of a farm writes any */
	SR_TRUNCATED,
	MALFORMED_SRH,
	MALFORMED_TRANSPORT,
	NOTHING_INSIDE, /* neither a packet nor a transport header */
};

/* read_srh reads the header behind the IPv6 header by the rules of RFC 8754 §4.3.1.1 and
 * returns the next header, or a negative number. *size is for the verifier, which does not
 * follow numbers stored in *sr. */
static __always_inline int read_srh(struct xdp_md *ctx, struct cursor *c, struct sr *sr,
				    __u32 payload, __u32 *size)
{
	struct srh *srh = take(c, sizeof(*srh));
	struct in6_addr *list = c->pos;
	__u32 bytes, entries, left;

	if (!srh)
		return -1;
	bytes = srh->length * 8;
	entries = srh->last_entry + 1;
	if (srh->type != SRH_TYPE || bytes + sizeof(*srh) > payload)
		return -1;
	if (entries > (__u32)srh->length / 2 || srh->segments_left > entries)
		return -1;
	if (!take(c, bytes))
		return -1;
	*size = sizeof(*srh) + bytes;
	left = srh->segments_left;
	sr->srh_bytes = *size;
	sr->signed_segments = entries;
	sr->with_tlvs = bytes != entries * sizeof(struct in6_addr);
	sr->left = left;
	if (left) {
		struct in6_addr *next = list + (left - 1);

		if ((void *)(next + 1) > c->end)
			return -1;
		sr->next = *next;
	}
	return srh->next_header;
}

/* read_sender reads the sender of a packet that has the SRH inside: the route's first segment. */
static __always_inline int read_sender(struct xdp_md *ctx, struct sr *sr)
{
	__u32 last = sr->signed_segments - 1;
	struct sid first;

	if (bpf_xdp_load_bytes(ctx, SRH_AT + sizeof(struct srh) + last * sizeof(first), &first,
			       sizeof(first)))
		return -1;
	sr->sender_be = first.locator_be;
	__builtin_memcpy(&sr->tag, &first.function_be, sizeof(sr->tag));
	sr->signed_segments = last;
	return 0;
}

/* read_inserted completes the facts of a packet that has the SRH inside: its destination is the
 * route's last segment. */
static __always_inline int read_inserted(struct xdp_md *ctx, struct packet *p, __u32 size)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct {
		struct ipv6hdr ip;
		struct srh srh;
		struct sid list[];
	} *h = take(&c, sizeof(*h) + sizeof(struct sid));

	if (!h)
		return -1;
	read_ip6(&h->ip, p);
	p->kind = KIND_OTHER;
	__builtin_memcpy(&p->t.vip, &h->list[0], sizeof(p->t.vip));
	p->length -= size;
	p->ip = ETH_BYTES;
	p->l4 = SRH_AT + size;
	return 0;
}

/* is_transport: an SRH before this header is inside the packet. */
static __always_inline bool is_transport(int next)
{
	return next == IPPROTO_TCP || next == IPPROTO_UDP || next == IPPROTO_ICMPV6;
}

static __always_inline enum opened opened_by(enum reading transport)
{
	switch (transport) {
	case READ:
	case IN_PART:
		return OPENED;
	case TRUNCATED:
		return SR_TRUNCATED;
	default:
		return MALFORMED_TRANSPORT;
	}
}

/* unfold is open_sr without the direction and the transport header. The sender comes first: a packet from outside costs
 * its headers, whatever it carries. */
static __always_inline enum opened unfold(struct xdp_md *ctx, struct sr *sr, struct packet *p)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip));
	int inside, protocol;
	__u32 room, size = 0;

	if (!ip)
		return SR_TRUNCATED;
	__builtin_memcpy(&sr->sid, &ip->daddr, sizeof(sr->sid));
	sr->sender_be = upper_half(&ip->saddr);
	sr->tag = lower_half(&ip->saddr);
	sr->class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	sr->hop_limit = ip->hop_limit;
	room = length_of(ip->payload_len);
	if (c.pos + room > c.end && SRH_AT + room > bpf_xdp_get_buff_len(ctx))
		return SR_TRUNCATED;
	inside = ip->nexthdr;
	if (inside == IPPROTO_ROUTING) {
		inside = read_srh(ctx, &c, sr, room, &size);
		if (inside < 0)
			return MALFORMED_SRH;
		p->inserted = is_transport(inside);
		if (p->inserted && read_sender(ctx, sr))
			return SR_TRUNCATED;
	}
	if (!is_inside(sr->sender_be))
		return FROM_OUTSIDE;
	if (sr->with_tlvs)
		return WITH_TLVS;
	protocol = inside;
	if (inside == IPPROTO_IPV6 || inside == IPPROTO_IPIP) {
		p->ip = SRH_AT + sr->srh_bytes;
		c = frame_at(ctx, frame_offset(&p->ip));
		protocol = read_network(&c, p);
		if (protocol < 0)
			return SR_TRUNCATED;
		if (p->family != (inside == IPPROTO_IPV6 ? 6 : 4))
			return NOTHING_INSIDE;
		if (sr->srh_bytes + p->length > room)
			return SR_TRUNCATED;
		p->l4 = p->ip + ip_bytes(p);
	} else if (p->inserted) {
		if (read_inserted(ctx, p, size))
			return SR_TRUNCATED;
	} else {
		return NOTHING_INSIDE;
	}
	set_word(&p->t.protocol, protocol);
	return OPENED;
}

/* open_sr parses a frame to a SID of this node: the segments, and the packet that came with
 * them. It is a separate function, so that the verifier looks at it once. */
__noinline int open_sr(struct xdp_md *ctx, struct sr *sr, struct packet *p, enum direction d)
{
	enum opened how;

	if (!sr || !p)
		return SR_TRUNCATED;
	__builtin_memset(sr, 0, sizeof(*sr));
	__builtin_memset(p, 0, sizeof(*p));
	how = unfold(ctx, sr, p);
	if (how == OPENED)
		how = opened_by(xdp_read_upper(ctx, p));
	if (d == OUTWARD)
		reverse(&p->t);
	return how;
}

static __always_inline void own_mac(__u8 *to)
{
	const __u16 *from = (const void *)self.mac;

	for (int i = 0; i < ETH_ALEN / 2; i++)
		((__u16 *)to)[i] = from[i];
}

/* own_link is this node's link address, and its MTU in the upper 16 bits. */
static __always_inline __u64 own_link(void)
{
	return *(const volatile __u64 *)self.mac;
}

/* is_to_us: the frame is for this node's link address. The kernel forwards no other (RFC 1812
 * §5.3.4, RFC 1122 §3.3.6), and neither do we. */
static __always_inline bool is_to_us(const struct ethhdr *eth)
{
	return !((*(const __u64 *)eth ^ own_link()) & LINK_ADDRESS);
}

/* is_taken: the frame is for an address that this node takes frames for. ours: its packet is for this
 * node (packet/link_addresses.h). */
static __always_inline bool is_taken(const struct ethhdr *eth, bool ours)
{
	return is_to_us(eth) || takes(*(const __u64 *)eth & LINK_ADDRESS, ours);
}

/* link_header addresses a frame that this node sends. Link addresses have even offsets in all
 * our structures. */
static __always_inline void link_header(struct ethhdr *eth, const __u8 *to, __u8 family)
{
	__builtin_memcpy(eth->h_dest, __builtin_assume_aligned(to, 2), ETH_ALEN);
	own_mac(eth->h_source);
	eth->h_proto = bpf_htons(family == 6 ? ETH_P_IPV6 : ETH_P_IP);
}

/* own_address is the address that this node sends a flow's packets from: tag is UNTAGGED, or its
 * interface identifier. */
static __always_inline struct in6_addr own_address(__be64 tag, __u32 label)
{
	struct in6_addr a;

	*(__be64 *)&a = self.locator_be;
	*((__be64 *)&a + 1) = tag ?: bpf_cpu_to_be64(label);
	return a;
}
