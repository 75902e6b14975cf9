/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* errors.h: ICMP errors of the LB about a packet that it cannot send to a node, or from a node to its
 * destination. They go to the packet's source by the kernel's FIB, as a router's do. */
#pragma once
#include "core/limit.h"
#include "edge/counters.h"
#include "edge/forward.h"
#include "edge/instances.h"
#include "edge/recent.h"
#include "edge/tuple.h"
#include "edge/tunnel.h"
#include "packet/icmp.h"

/* link_address is the link address that the frame came to, or 0. */
static __always_inline __u64 link_address(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	const struct ethhdr *eth = take(&c, sizeof(*eth));

	return eth ? *(const __u64 *)eth & LINK_ADDRESS : 0;
}

/* send_own sends the packet that took the place of packet p in the frame, but for its link header. */
__noinline int send_own(struct xdp_md *ctx, struct packet *p, __u64 own_mac, __u32 reason)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));

	if (!eth || !p)
		return XDP_ABORTED;
	__builtin_memcpy(eth->h_dest, &own_mac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, &own_mac, ETH_ALEN);
	eth->h_proto = bpf_htons(p->family == 6 ? ETH_P_IPV6 : ETH_P_IP);
	p->length = bpf_xdp_get_buff_len(ctx) - ETH_BYTES;
	p->class = 0;
	p->hop_limit = OUTER_HOP_LIMIT;
	return forward(ctx, p, reason, reason, EDGE_DROP_LIMIT_NEIGHBOUR);
}

/* send_error is send_own of an ICMP error. */
static __always_inline int send_error(struct xdp_md *ctx, struct packet *p, __u64 own_mac,
				      __u32 reason)
{
	set_word(&p->t.protocol, p->family == 6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
	return send_own(ctx, p, own_mac, reason);
}

/* edge_owner is the service of a packet, by the end of it that has a service. A function of its own, for its stack. */
__noinline int edge_owner(const struct tuple *t)
{
	int service;

	if (!t)
		return 0;
	service = edge_service_at(&t->client);
	return service < 0 ? edge_service_at(&t->vip) : service;
}

/* too_big answers a packet that is too long for this MTU. p->t has its source first. */
static __always_inline int too_big(struct xdp_md *ctx, struct packet *p, __u32 mtu)
{
	__u64 mac = link_address(ctx);

	if (p->kind == KIND_ERROR || !mac ||
	    !may_tell(LIMIT_TOO_BIG, &p->t.client, edge_owner(&p->t)))
		return verdict(EDGE_DROP_TOO_BIG, XDP_DROP);
	if (write_too_big(ctx, p, mtu))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	return send_error(ctx, p, mac, EDGE_TOO_BIG);
}

/* This LB's addresses at the links to clients and world, of IPv6 and of IPv4 each; zeros: it has none. As
 * edge_macs they change while the program runs. */
struct in6_addr edge_addresses[2 * SIDES] SEC(".data.edge_addresses") = {};

/* expired answers the sender of a packet whose hop limit ends here (RFC 4443 §3.3, RFC 792), before a
 * function changes its source. p->t has the packet's source first. A function of its own, as it is rare. */
__noinline int expired(struct xdp_md *ctx, struct packet *p, __u32 side)
{
	__u32 at = side * 2 + (p && p->family == 4);
	__u64 mac = link_address(ctx);
	struct in6_addr from;

	if (!p)
		return XDP_ABORTED;
	asm volatile("%0 &= %1" : "+r"(at) : "i"(2 * SIDES - 1)); /* for Linux 6.1 */
	from = edge_addresses[at];
	if (p->kind == KIND_ERROR || !mac || !is_one_node(&p->t.client) || !is_one_node(&from))
		return verdict(EDGE_DROP_HOP_LIMIT, XDP_DROP);
	if (!may_tell(LIMIT_EXPIRED, &p->t.client, edge_owner(&p->t)))
		return verdict(EDGE_DROP_LIMIT_TIME_EXCEEDED, XDP_DROP);
	p->t.vip = from;
	if (write_time_exceeded(ctx, p))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	return send_error(ctx, p, mac, EDGE_TIME_EXCEEDED);
}

/* end_flow ends a flow of datagrams whose public port went with its node: the client gets word of it,
 * and its next datagram begins another flow. p->t has the client first. */
static __always_inline int end_flow(struct xdp_md *ctx, struct packet *p, __u64 partner)
{
	__u64 hash = p->hash, mac = link_address(ctx);

	bpf_map_delete_elem(&edge_flows, &hash);
	bpf_map_delete_elem(&edge_flows, &partner);
	edge_end_era();
	if (!mac || !may_tell(LIMIT_REFUSAL, &p->t.client, edge_owner(&p->t)))
		return verdict(EDGE_DROP_LIMIT_REFUSAL, XDP_DROP);
	if (write_port_unreachable(ctx, p))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	return send_error(ctx, p, mac, EDGE_FLOW_ENDED);
}
