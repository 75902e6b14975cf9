/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* answer.h: a node's answers to an LB: whether it owns the flow of a packet, and that it answers at
 * all. The frame goes back as it came, with its ends exchanged. */
#pragma once
#include "edge/node_flows.h"

const volatile __u32 node_server = 0; /* this node's number; set before loading */

/* turn_back sends the frame to the LB with another VNI and message. */
static __always_inline int turn_back(struct xdp_md *ctx, const struct edge_outer *o, __u32 vni,
				     enum edge_message m, enum counter reason)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct edge_vxlan *v;
	__u8 mac[ETH_ALEN];

	if (!eth)
		return XDP_ABORTED;
	__builtin_memcpy(mac, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, mac, ETH_ALEN);
	if (is_mapped(&o->to)) {
		struct iphdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return XDP_ABORTED;
		ip->saddr = o->to.s6_addr32[3]; /* the sum of the header stays */
		ip->daddr = o->from.s6_addr32[3];
	} else {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return XDP_ABORTED;
		copy_address(&ip->saddr, &o->to);
		copy_address(&ip->daddr, &o->from);
	}
	v = take(&c, sizeof(*v));
	if (!v)
		return XDP_ABORTED;
	v->udp.check = 0;
	v->vni_be = bpf_htonl(vni << 8 | m | o->way);
	count(reason);
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* answer handles a message of an LB. */
static __always_inline int answer(struct xdp_md *ctx, struct node_state *s)
{
	const struct edge_outer *o = &s->outer;
	struct packet *p = &s->packet;
	__u32 own = node_server << EDGE_SERVER_SHIFT, instance;

	if (o->vni != own || (o->message != MESSAGE_PROBE && o->message != MESSAGE_RECOVER))
		return verdict(NODE_DROP_IMPOSSIBLE_ID, XDP_DROP);
	if (o->message == MESSAGE_PROBE)
		return turn_back(ctx, o, own, MESSAGE_ALIVE, NODE_ALIVE);
	p->reading = read_at((void *)(long)ctx->data, (void *)(long)ctx->data_end,
			     frame_offset(&o->bytes), p, INWARD);
	p->reading = read_hidden(ctx, p, p->reading);
	if (p->reading != READ || !shows_flow(ctx, p))
		return verdict(NODE_DROP_MALFORMED, XDP_DROP);
	instance = kept_instance(kept_hash(p, o->way & WAY_INWARD));
	if (!instance)
		return turn_back(ctx, o, own, MESSAGE_NOT_MINE, NODE_NOT_MINE);
	return turn_back(ctx, o, own | instance, MESSAGE_OWNED, NODE_OWNED);
}
