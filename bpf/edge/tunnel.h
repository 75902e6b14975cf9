/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* tunnel.h: the VXLAN headers between the edge LB and its nodes: read, written and removed. Over
 * IPv6 the UDP checksum is 0 (RFC 6935): both ends are ours, and the packet inside has its own. */
#pragma once
#include "core/stall.h"
#include "edge/tuple.h"
#include "edge/types.h"
#include "packet/ip_header.h"
#include "packet/vxlan.h"

/* The facts of a packet between LB and node. */
struct edge_outer {
	struct in6_addr from;
	struct in6_addr to;
	__u64 flow;  /* digest of the flow, as the LB knows it */
	__u32 vni;   /* enum edge_wire */
	__u32 bytes; /* of the headers, from the frame's beginning to the packet inside */
	__u8 class;
	__u8 own_mac[6]; /* of the link that the frame came by */
	__u8 message;	 /* enum edge_message */
	__u8 way;	 /* enum edge_way */
};

enum edge_read {
	EDGE_READ,
	EDGE_NOT_TUNNEL, /* another packet */
	EDGE_MALFORMED,	 /* of our port, but not as docs/design/edge-wire.md has it */
	EDGE_IN_FRAGMENTS,
};

/* The link header inside, which bears the flow. */
struct edge_marks {
	__be16 mark_to;
	__be32 flow_upper_be;
	__be16 mark_from;
	__be32 flow_lower_be;
	__be16 proto;
} __attribute__((packed));

_Static_assert(sizeof(struct edge_marks) == sizeof(struct ethhdr), "the marks are link addresses");

/* The headers behind the outer IP header, as in packet/vxlan.h. */
struct edge_vxlan {
	struct udphdr udp;
	__be32 flags;
	__be32 vni_be;
	struct edge_marks inner;
} __attribute__((packed));

/* read_outer_ip reads the outer IP header; false: the packet is no UDP. */
static __always_inline bool read_outer_ip(struct cursor *c, struct edge_outer *o, bool *fragment)
{
	__u8 *first = c->pos;

	if ((void *)(first + 1) > c->end)
		return false;
	if (*first >> 4 == 6) {
		struct ipv6hdr *ip = take(c, sizeof(*ip));

		if (!ip)
			return false;
		copy_address(&o->from, &ip->saddr);
		copy_address(&o->to, &ip->daddr);
		o->class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
		o->bytes = ETH_BYTES + sizeof(*ip);
		*fragment = ip->nexthdr == IPPROTO_FRAGMENT;
		return *fragment || ip->nexthdr == IPPROTO_UDP;
	}
	struct iphdr *ip = take(c, sizeof(*ip));

	if (!ip || *(__u8 *)ip != 0x45)
		return false;
	copy_mapped(&o->from, ip->saddr);
	copy_mapped(&o->to, ip->daddr);
	o->class = ip->tos;
	o->bytes = ETH_BYTES + sizeof(*ip);
	*fragment = ip->frag_off & bpf_htons(IP_FRAGMENT);
	return ip->protocol == IPPROTO_UDP;
}

/* is_marked: the link addresses inside are a flow's, and the type is that of a packet. */
static __always_inline bool is_marked(const struct edge_marks *m)
{
	return m->mark_to == bpf_htons(EDGE_MARK_TO) && m->mark_from == bpf_htons(EDGE_MARK_FROM) &&
	       (m->proto == bpf_htons(ETH_P_IP) || m->proto == bpf_htons(ETH_P_IPV6));
}

/* read_tunnel reads the headers of a frame. */
static __always_inline enum edge_read read_tunnel(struct xdp_md *ctx, struct edge_outer *o)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	bool fragment = false;
	struct edge_vxlan *v;

	if (!eth || (eth->h_proto != bpf_htons(ETH_P_IP) && eth->h_proto != bpf_htons(ETH_P_IPV6)))
		return EDGE_NOT_TUNNEL;
	__builtin_memcpy(o->own_mac, eth->h_dest, ETH_ALEN);
	if (!read_outer_ip(&c, o, &fragment))
		return EDGE_NOT_TUNNEL;
	if (fragment)
		return EDGE_IN_FRAGMENTS;
	v = c.pos;
	if ((void *)v + sizeof(v->udp) > c.end || v->udp.dest != bpf_htons(VXLAN_PORT))
		return EDGE_NOT_TUNNEL;
	if ((void *)(v + 1) > c.end || v->flags != bpf_htonl(VXLAN_VNI_VALID) ||
	    (bpf_ntohl(v->vni_be) & MESSAGE_BITS) >= MESSAGES ||
	    bpf_ntohl(v->vni_be) & (WAY_BITS & ~WAYS) || !is_marked(&v->inner))
		return EDGE_MALFORMED;
	o->vni = bpf_ntohl(v->vni_be) >> 8;
	o->message = bpf_ntohl(v->vni_be) & MESSAGE_BITS;
	o->way = bpf_ntohl(v->vni_be) & WAYS;
	o->flow = (__u64)bpf_ntohl(v->inner.flow_upper_be) << 32 |
		  bpf_ntohl(v->inner.flow_lower_be);
	o->bytes += sizeof(*v);
	return EDGE_READ;
}

/* leave_tunnel removes the headers and reads the packet, whose link header has no addresses
 * yet. */
static __always_inline enum reading leave_tunnel(struct xdp_md *ctx, const struct edge_outer *o,
						 struct packet *p)
{
	if (bpf_xdp_adjust_head(ctx, o->bytes - ETH_BYTES))
		return TRUNCATED;
	return read_hidden(ctx, p,
			   read_at((void *)(long)ctx->data, (void *)(long)ctx->data_end, ETH_BYTES,
				   p, INWARD));
}

/* restore gives the packet its link header, as a packet for this host, and the congestion marks of the
 * tunnel (RFC 6040). */
static __always_inline enum rewritten restore(struct xdp_md *ctx, const struct edge_outer *o,
					      struct packet *p)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	int class = ecn_inward(p->class, o->class);

	if (!eth)
		return FRAME_TRUNCATED;
	if (class < 0)
		return CONGESTED;
	__builtin_memcpy(eth->h_dest, o->own_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, o->own_mac, ETH_ALEN);
	eth->h_proto = bpf_htons(p->family == 6 ? ETH_P_IPV6 : ETH_P_IP);
	return set_class(ctx, p, class);
}

/* The bytes before the packet inside, with its own link header, whose place the marks take. */
#define OUTER_BYTES6 (ETH_BYTES + (__u32)sizeof(struct ipv6hdr) + (__u32)sizeof(struct edge_vxlan))
#define OUTER_BYTES4 (ETH_BYTES + (__u32)sizeof(struct iphdr) + (__u32)sizeof(struct edge_vxlan))

/* The headers are written eight bytes at a time, some of them twice: a store for each field would take
 * longer than all else that a known flow's packet costs. */
static __always_inline void write_word(void *frame, __u32 at, __u64 word)
{
	*(__u64 *)(frame + at) = word;
}

static __always_inline void write_link(void *frame, const struct edge_end *e, __be16 type)
{
	__u64 to = READ_ONCE(*(const __u64 *)e->mac), own = *(const __u64 *)e->own;

	write_word(frame, 0, (to & LINK_ADDRESS) | own << 48);
	write_word(frame, ETH_ALEN, (own & LINK_ADDRESS) | (__u64)type << 48);
}

/* write_vxlan writes the headers behind the outer IP header at a place of the frame. */
static __always_inline void write_vxlan(void *frame, __u32 at, const struct packet *p, __u64 flow,
					__u32 vni, __u32 m)
{
	__be16 length_be = bpf_htons(p->length + sizeof(struct edge_vxlan));
	__u64 mark_from = bpf_htons(EDGE_MARK_FROM);

	write_word(frame, at,
		   bpf_htons(FIRST_PORT | (flow & 0x3fff)) | (__u32)bpf_htons(VXLAN_PORT) << 16 |
			   (__u64)length_be << 32);
	write_word(frame, at + 8,
		   bpf_htonl(VXLAN_VNI_VALID) | (__u64)bpf_htonl(vni << 8 | m) << 32);
	write_word(frame, at + 16,
		   bpf_htons(EDGE_MARK_TO) | (__u64)bpf_htonl(flow >> 32) << 16 | mark_from << 48);
	write_word(frame, at + 22,
		   mark_from | (__u64)bpf_htonl(flow) << 16 |
			   (__u64)bpf_htons(p->family == 6 ? ETH_P_IPV6 : ETH_P_IP) << 48);
}

/* enter_tunnel6 puts the headers before the packet. */
static __always_inline enum rewritten enter_tunnel6(struct xdp_md *ctx, const struct packet *p,
						    const struct edge_end *e, __u64 flow, __u32 vni,
						    __u32 m)
{
	const __u64 *from = (const void *)&e->from, *to = (const void *)&e->to;
	struct cursor c;
	void *frame;

	if (bpf_xdp_adjust_head(ctx, -(int)(OUTER_BYTES6 - ETH_BYTES)))
		return NO_HEADROOM;
	c = frame_at(ctx, 0);
	frame = take(&c, OUTER_BYTES6);
	if (!frame)
		return FRAME_TRUNCATED;
	write_link(frame, e, bpf_htons(ETH_P_IPV6));
	write_word(frame, 14,
		   bpf_htonl(6U << 28 | (__u32)p->class << 20 | (flow & 0xfffff)) |
			   (__u64)bpf_htons(p->length + sizeof(struct edge_vxlan)) << 32 |
			   (__u64)IPPROTO_UDP << 48 | (__u64)OUTER_HOP_LIMIT << 56);
	write_word(frame, 22, from[0]);
	write_word(frame, 30, from[1]);
	write_word(frame, 38, to[0]);
	write_word(frame, 46, to[1]);
	write_vxlan(frame, ETH_BYTES + sizeof(struct ipv6hdr), p, flow, vni, m);
	return REWRITTEN;
}

/* enter_tunnel4 does so over IPv4. No router may fragment it, so it needs no identification
 * (RFC 6864 §4.1). */
static __always_inline enum rewritten enter_tunnel4(struct xdp_md *ctx, const struct packet *p,
						    const struct edge_end *e, __u64 flow, __u32 vni,
						    __u32 m)
{
	__be16 first = bpf_htons(0x4500 | p->class);
	__be16 length_be = bpf_htons(p->length + OUTER_BYTES4 - ETH_BYTES);
	struct cursor c;
	void *frame;

	if (bpf_xdp_adjust_head(ctx, -(int)(OUTER_BYTES4 - ETH_BYTES)))
		return NO_HEADROOM;
	c = frame_at(ctx, 0);
	frame = take(&c, OUTER_BYTES4);
	if (!frame)
		return FRAME_TRUNCATED;
	write_link(frame, e, bpf_htons(ETH_P_IP));
	write_word(frame, 14,
		   first | (__u32)length_be << 16 | (__u64)bpf_htons(IP_DONT_FRAGMENT) << 48);
	write_word(frame, 22,
		   OUTER_HOP_LIMIT | IPPROTO_UDP << 8 |
			   (__u32)folded((__u64)e->sum + length_be + first) << 16 |
			   (__u64)e->from.s6_addr32[3] << 32);
	write_word(frame, 30, e->to.s6_addr32[3]); /* the rest is that of UDP */
	write_vxlan(frame, ETH_BYTES + sizeof(struct iphdr), p, flow, vni, m);
	return REWRITTEN;
}

/* enter_tunnel puts the packet, which is first in the frame, into VXLAN to an end. m is enum edge_message
 * with enum edge_way. */
static __always_inline enum rewritten enter_tunnel(struct xdp_md *ctx, const struct packet *p,
						   const struct edge_end *e, __u64 flow, __u32 vni,
						   __u32 m)
{
	return is_mapped(&e->to) ? enter_tunnel4(ctx, p, e, flow, vni, m)
				 : enter_tunnel6(ctx, p, e, flow, vni, m);
}
