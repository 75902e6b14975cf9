/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* refuse.h: packets for a VIP's port that no service has. A kernel that forwards would send them
 * back to the router, and the router here again, until their hops end. */
#pragma once
#include "packet/bare_segment.h"
#include "lb/send.h"

/* is_discovery: the packet is of neighbour discovery. No router forwards it with this hop limit
 * (RFC 4861 §7.1.1). */
static __always_inline bool is_discovery(struct xdp_md *ctx, const struct packet *p)
{
	struct cursor c = frame_at(ctx, frame_offset(&p->l4));
	const __u8 *type = take(&c, 1);

	return type && p->family == 6 && p->t.protocol == IPPROTO_ICMPV6 && p->hop_limit == 255 &&
	       *type >= ICMP6_DISCOVERY && *type <= ICMP6_REDIRECT;
}

/* may_expire: an error about the packet may go to its sender (RFC 4443 §2.4(e), RFC 1122 §3.2.2). */
static __always_inline bool may_expire(struct xdp_md *ctx, const struct packet *p)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	const struct iphdr *ip = take(&c, sizeof(*ip));

	if (!ip || p->kind == KIND_TOO_BIG || !is_one_node(&p->t.client))
		return false;
	return p->family == 6 || !(ip->frag_off & bpf_htons(IP_OFFSET));
}

/* This node's addresses at the link, of IPv6 and of IPv4; zeros: it has none. User space changes them while the
 * program runs. */
struct in6_addr link_addresses[2] SEC(".data.link_addresses") = {};

/* speak_as_node makes this node the sender of an error about the packet: a VIP is an address of every LB (RFC 4443
 * §2.2(b), RFC 1812 §4.3.2.4). Without an address of its own it speaks for the VIP. */
static __always_inline void speak_as_node(struct packet *p)
{
	const struct in6_addr *own = &link_addresses[p->family == 4];

	if (upper_half(own) | lower_half(own))
		p->t.vip = *own;
}

/* expired answers the sender of a packet that this hop is the last for, by the neighbour that the
 * packet came from. So a trace of the way to a VIP shows the LB. */
__noinline int expired(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	__u8 back[ETH_ALEN] __attribute__((aligned(2)));
	int done;

	if (!p || !eth)
		return XDP_ABORTED;
	__builtin_memcpy(back, eth->h_source, sizeof(back));
	if (!may_expire(ctx, p))
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	if (!may_answer(LIMIT_EXPIRED, p))
		return verdict(LB_DROP_LIMIT_TIME_EXCEEDED, XDP_DROP);
	speak_as_node(p);
	done = write_time_exceeded(ctx, p);
	if (!done)
		done = link_to(ctx, back, p->family);
	return done ? rewrite_failed(done) : transmit(LB_TIME_EXCEEDED);
}

/* refuse_port answers the sender by the neighbour that the packet came from. */
__noinline int refuse_port(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	__u8 back[ETH_ALEN] __attribute__((aligned(2)));
	int done;

	if (!p || !eth)
		return XDP_ABORTED;
	if (!is_one_node(&p->t.client) || (p->kind == KIND_TCP && p->flags & TCP_RST))
		return verdict(LB_DROP_UNSERVED, XDP_DROP);
	if (!may_answer(LIMIT_REFUSAL, p))
		return verdict(LB_DROP_LIMIT_REFUSAL, XDP_DROP);
	__builtin_memcpy(back, eth->h_source, sizeof(back));
	done = p->kind == KIND_TCP ? reset_port(ctx, p) : write_port_unreachable(ctx, p);
	if (!done)
		done = link_to(ctx, back, p->family);
	return done ? rewrite_failed(done) : transmit(LB_REFUSE_PORT);
}
