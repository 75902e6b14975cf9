/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* refuse.h: a packet of a flow that a function does not know, as the node that knew it is gone or
 * began again. The client gets word, so that the flow does not hang: of a segment of its own a RST; of
 * a packet of the world by the LB, which knows the client. */
#pragma once
#include "core/limit.h"
#include "edge/answer.h"
#include "edge/node_config.h"
#include "packet/bare_segment.h"

/* may_refuse: the packet is a client's segment as it sent it, so that its source can be answered. */
static __always_inline bool may_refuse(const struct node_state *s)
{
	const struct packet *p = &s->packet;

	return p->kind == KIND_TCP && !opens(p) && !(p->flags & TCP_RST) && !s->inward &&
	       !s->changed;
}

/* refuse sends the RST back through the LB, past the rest of the chain. */
static __always_inline int refuse(struct xdp_md *ctx, struct node_state *s)
{
	if (!may_tell(LIMIT_REFUSAL, &s->packet.t.client, edge_service_of(s->outer.vni)))
		return verdict(NODE_DROP_LIMIT_REFUSAL, XDP_DROP);
	if (reset_port(ctx, &s->packet))
		return verdict(NODE_DROP_NO_HEADROOM, XDP_DROP);
	reverse(&s->packet.t);
	s->changed = 1;
	s->kept = 1; /* no flow */
	s->outer.way = WAY_INWARD;
	count(NODE_REFUSED);
	bpf_tail_call(ctx, &node_functions, s->first + s->length);
	return verdict(NODE_DROP_NO_FUNCTION, XDP_DROP);
}

/* may_give_back: the packet is the world's as it sent it, and begins no flow. */
static __always_inline bool may_give_back(const struct node_state *s)
{
	const struct packet *p = &s->packet;

	return s->inward && !s->changed && p->kind != KIND_ERROR && !opens(p);
}

/* give_back sends the packet back to the LB, past the rest of the chain. */
static __always_inline int give_back(struct xdp_md *ctx, struct node_state *s)
{
	struct edge_end *lb = lb_of(&s->outer);

	if (!lb || !lb->ready)
		return verdict(NODE_DROP_NO_LB, XDP_DROP);
	if (!may_tell(LIMIT_REFUSAL, &s->packet.t.client, edge_service_of(s->outer.vni)))
		return verdict(NODE_DROP_LIMIT_REFUSAL, XDP_DROP);
	if (enter_tunnel(ctx, &s->packet, lb, s->outer.flow, node_server << EDGE_SERVER_SHIFT,
			 MESSAGE_UNBOUND | s->outer.way))
		return verdict(NODE_DROP_NO_HEADROOM, XDP_DROP);
	count(NODE_UNBOUND);
	return bpf_redirect(lb->link, 0);
}
