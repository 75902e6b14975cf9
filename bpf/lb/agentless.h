/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* agentless.h: packets to servers without an agent, by enum delivery. Whatever the delivery, the
 * packet's hop limit counts a hop, so that a packet that comes back to the LB does not circle. */
#pragma once
#include "lb/send.h"
#include "lb/vxlan.h"

/* send_seg6 sends a packet to a SID that the server's kernel ends. */
static __always_inline int send_seg6(struct xdp_md *ctx, struct packet *p,
				     const struct service *svc, const struct server *s,
				     struct scratch *scr)
{
	if (begin_route(&scr->route, p, svc))
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	add_server(&scr->route, s, make_sid(0, FN_DELIVER, argument_of(p)));
	scr->route.reason = scr->destination.reason;
	if (p->length + route_bytes(scr->route.n, WIRE_ENCAP) <= self.mtu && p->hop_limit > 1)
		count(LB_BY_SEG6);
	return forward(ctx, p, svc, &scr->route, NULL);
}

/* send_l2 sends a packet to the server's link address. All but the hop limit, and the checksum
 * over it, stays as it is. */
static __always_inline int send_l2(struct xdp_md *ctx, struct packet *p, const struct service *svc,
				   const struct server *s, const struct scratch *scr)
{
	enum rewritten done;

	if (p->length > self.mtu)
		return too_big(ctx, p, svc);
	done = dec_hop_limit(ctx, p);
	if (!done)
		done = link_to(ctx, s->mac, p->family);
	if (done)
		return rewrite_failed(done);
	count(LB_BY_L2);
	return transmit(scr->destination.reason);
}

/* send_vxlan sends a packet in the server's tunnel. The frame's own Ethernet header is the inner
 * one. */
static __always_inline int send_vxlan(struct xdp_md *ctx, struct packet *p,
				      const struct service *svc, const struct server *s,
				      const struct scratch *scr)
{
	__u32 number = scr->destination.server;
	const struct tunnel *t = bpf_map_lookup_elem(&tunnels, &number);
	enum rewritten done;
	__s64 inner;

	if (!t)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (p->length + tunnel_bytes(t) > self.mtu)
		return too_big(ctx, p, svc);
	done = dec_hop_limit(ctx, p);
	inner = inner_sum(ctx, p);
	if (!done && bpf_xdp_adjust_head(ctx, -(int)tunnel_bytes(t)))
		done = NO_HEADROOM;
	if (!done && !write_vxlan(ctx, p, t, s->mac, p->length, inner))
		done = FRAME_TRUNCATED;
	if (done)
		return rewrite_failed(done);
	count(LB_BY_VXLAN);
	return transmit(scr->destination.reason);
}

/* send_agentless sends this CPU's packet to the server of its destination. */
static __always_inline int send_agentless(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	const struct service *svc;
	const struct server *s;
	struct packet *p;

	if (!scr)
		return XDP_ABORTED;
	p = &scr->packet;
	svc = p->kind == KIND_FRAGMENT ? vip_at(&p->t.vip) : service_of(p);
	s = server_at(scr->destination.server);
	if (!s || !svc) /* removed meanwhile */
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	switch (delivery_of(s)) {
	case DELIVERY_SEG6:
		return send_seg6(ctx, p, svc, s, scr);
	case DELIVERY_L2:
		return send_l2(ctx, p, svc, s, scr);
	case DELIVERY_VXLAN:
		return send_vxlan(ctx, p, svc, s, scr);
	}
	return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
}
