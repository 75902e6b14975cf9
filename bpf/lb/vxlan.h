/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* vxlan.h: the headers before a packet in VXLAN (RFC 7348 §5): outer Ethernet and IP, UDP, VXLAN,
 * and the Ethernet header of the frame inside. The UDP checksum is 0 over IPv4, as RFC 7348 asks.
 * Over IPv6 it is computed without a look at the payload, as the packet's own checksum tells
 * the sum (the kernel's local checksum offload); where that is not there it is 0 (RFC 6935), which
 * the receiver's device must allow. */
#pragma once
#include "lb/send.h"
#include "packet/icmp.h"
#include "packet/vxlan.h"

/* The far end of a server's tunnel, beside its record. IPv4 addresses are mapped. */
struct tunnel {
	struct in6_addr to;
	struct in6_addr from; /* IPv4; over IPv6 the LB's own locator and the flow label */
	__u8 mac[ETH_ALEN];   /* of the server's device */
	__u16 zero;
	__be32 vni_be; /* as in the header */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SERVERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct tunnel);
} tunnels SEC(".maps");

static __always_inline __u32 tunnel_ip_bytes(const struct tunnel *t)
{
	return is_mapped(&t->to) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
}

/* tunnel_bytes is the number of bytes that a tunnel adds to a frame. */
static __always_inline __u32 tunnel_bytes(const struct tunnel *t)
{
	return tunnel_ip_bytes(t) + VXLAN_BYTES;
}

/* fill_vxlan fills the headers before a packet of so many bytes. Packets of a flow have the same source
 * port. */
static __always_inline void fill_vxlan(struct vxlan *v, const struct packet *p,
				       const struct tunnel *t, __u32 length)
{
	v->udp.source = bpf_htons(FIRST_PORT | (flow_label(&p->t) & 0x3fff));
	v->udp.dest = bpf_htons(VXLAN_PORT);
	v->udp.len = bpf_htons(length + VXLAN_BYTES);
	v->flags = bpf_htonl(VXLAN_VNI_VALID);
	v->vni_be = t->vni_be;
	link_header(&v->inner, t->mac, p->family);
}

/* fill_vxlan6 fills the headers over IPv6. */
static __always_inline void fill_vxlan6(struct vxlan6 *v, const struct packet *p,
					const struct tunnel *t, const __u8 *mac, __u32 length)
{
	struct in6_addr from = own_address(UNTAGGED, flow_label(&p->t));

	link_header(&v->eth, mac, 6);
	outer_header(&v->ip, &from, &t->to, p->class, flow_label(&p->t), length + VXLAN_BYTES,
		     IPPROTO_UDP);
	fill_vxlan(&v->rest, p, t, length);
}

/* fill_vxlan4 fills the headers over IPv4. Routers may fragment the packet (RFC 7348 §4.3 lets
 * them), so it has an identification (RFC 6864 §4). */
static __always_inline void fill_vxlan4(struct vxlan4 *v, const struct packet *p,
					const struct tunnel *t, const __u8 *mac, __u32 length)
{
	link_header(&v->eth, mac, 4);
	v->ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tos = p->class,
		.tot_len = bpf_htons(sizeof(v->ip) + VXLAN_BYTES + length),
		.id = bpf_get_prandom_u32(),
		.ttl = OUTER_HOP_LIMIT,
		.protocol = IPPROTO_UDP,
		.saddr = t->from.s6_addr32[3],
		.daddr = t->to.s6_addr32[3],
	};
	v->ip.check = folded(bpf_csum_diff(NULL, 0, (void *)&v->ip, sizeof(v->ip), 0));
	fill_vxlan(&v->rest, p, t, length);
}

/* inner_sum adds up a packet from its IP header on, by RFC 1071: a right checksum makes a header, or
 * a transport packet and its pseudo-header, add up to 0. Returns -1 if the packet has no checksum of
 * its own. */
static __always_inline __s64 inner_sum(struct xdp_md *ctx, const struct packet *p)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	__u64 sum = 0;

	if (p->kind == KIND_FRAGMENT || p->options)
		return -1;
	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return -1;
		/* Lengths and addresses are in the pseudo-header, too. */
		sum = *(__be32 *)ip;
		sum += bpf_htons(ip->nexthdr << 8 | ip->hop_limit);
		return sum + (__u16)~bpf_htons(ip->nexthdr);
	}
	if (p->kind == KIND_TOO_BIG) /* ICMP has no pseudo-header */
		return 0;
	if (p->kind == KIND_UDP) {
		struct iphdr *ip = take(&c, sizeof(*ip));
		struct udphdr *udp = take(&c, sizeof(*udp));

		if (!udp || !udp->check)
			return -1;
	}
	sum = (__u64)p->t.client.s6_addr32[3] + p->t.vip.s6_addr32[3];
	sum += bpf_htons(p->length - sizeof(struct iphdr)) + bpf_htons(p->t.protocol);
	return folded(sum); /* its complement, as the rest makes it 0 */
}

/* sum_vxlan6 writes the UDP checksum of the headers and a packet with that sum (RFC 8200 §8.1). */
static __always_inline void sum_vxlan6(struct vxlan6 *v, __s64 inner, __u32 length)
{
	__u32 seed = pseudo_sum(length + VXLAN_BYTES, IPPROTO_UDP);
	__s64 sum = bpf_csum_diff(NULL, 0, (void *)&v->ip.saddr, 2 * sizeof(v->ip.saddr), seed);

	sum = bpf_csum_diff(NULL, 0, (void *)&v->rest, sizeof(v->rest), sum);
	v->rest.udp.check = folded((sum & 0xffffffff) + inner) ?: 0xffff;
}

#define VXLAN6_BYTES (ETH_BYTES + (__u32)sizeof(struct ipv6hdr) + VXLAN_BYTES)
#define VXLAN4_BYTES (ETH_BYTES + (__u32)sizeof(struct iphdr) + VXLAN_BYTES)

/* write_vxlan writes the headers into a frame that has room for them, by a helper of its kind of
 * program, before a packet with a sum (inner_sum). */
#define WRITE_VXLAN(name, context, store, ...)                                                  \
	static __always_inline bool name(struct context *ctx, const struct packet *p,           \
					 const struct tunnel *t, const __u8 *mac, __u32 length, \
					 __s64 inner)                                           \
	{                                                                                       \
		if (is_mapped(&t->to)) {                                                        \
			struct vxlan4 v = {};                                                   \
                                                                                                \
			fill_vxlan4(&v, p, t, mac, length);                                     \
			return !store(ctx, 0, &v.eth, VXLAN4_BYTES, ##__VA_ARGS__);             \
		}                                                                               \
		struct vxlan6 v = {};                                                           \
                                                                                                \
		fill_vxlan6(&v, p, t, mac, length);                                             \
		if (inner >= 0)                                                                 \
			sum_vxlan6(&v, inner, length);                                          \
		return !store(ctx, 0, &v.eth, VXLAN6_BYTES, ##__VA_ARGS__);                     \
	}

WRITE_VXLAN(write_vxlan, xdp_md, bpf_xdp_store_bytes)
WRITE_VXLAN(write_vxlan_long, __sk_buff, bpf_skb_store_bytes, 0)
