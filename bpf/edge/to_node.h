/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* to_node.h: the packet to the node of its flow, or as a question to any node. */
#pragma once
#include "edge/errors.h"
#include "edge/recover.h"
#include "edge/samples.h"
#include "edge/scratch.h"

/* no_room answers a packet that is too long for the way to a node. A function of its own, as such
 * packets are rare. */
__noinline int no_room(struct xdp_md *ctx, struct edge_scratch *s, const struct edge_end *e)
{
	if (!s || !e)
		return XDP_ABORTED;
	if (s->between) /* it came from a node, so only where links to nodes differ */
		return verdict(EDGE_DROP_TOO_BIG, XDP_DROP);
	if (s->side == SIDE_WORLD)
		reverse(&s->packet.t);
	return too_big(ctx, &s->packet,
		       e->mtu - sizeof(struct ipv6hdr) - sizeof(struct edge_vxlan));
}

/* send_to_node sends the packet to the flow's node. A function of its own, as most packets take the
 * shorter way (edge/steady.h). */
__noinline int send_to_node(struct xdp_md *ctx, struct edge_scratch *s, __u64 word)
{
	struct edge_count *n = edge_count_of(word);
	struct edge_end *e = edge_node(word);
	struct packet *p;

	if (!s || !e || !n)
		return XDP_ABORTED;
	p = &s->packet;
	if (!fits_tunnel(p, e))
		return no_room(ctx, s, e);
	if (enter_tunnel(ctx, p, e, p->hash, word & EDGE_INSTANCE, MESSAGE_PACKET | s->way))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	if (edge_count_packet(n, word))
		sample(p, word, s->side == SIDE_CLIENTS);
	count(EDGE_STEER);
	return bpf_redirect(e->link, 0);
}

/* ask sends the packet to a node as a question. */
__noinline int ask(struct xdp_md *ctx, struct edge_scratch *s, __u32 server)
{
	struct edge_end *e = bpf_map_lookup_elem(&edge_nodes, &server);
	struct packet *p;

	if (!s || !e)
		return XDP_ABORTED;
	p = &s->packet;
	if (!fits_tunnel(p, e))
		return no_room(ctx, s, e);
	if (enter_tunnel(ctx, p, e, p->hash, server << EDGE_SERVER_SHIFT, MESSAGE_RECOVER | s->way))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	count(EDGE_RECOVER);
	return bpf_redirect(e->link, 0);
}
