/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* refuse.h: a segment of the client network for a connection that a function does not know, as the
 * node that knew it is gone. The client gets a RST, so that the connection does not hang. */
#pragma once
#include "core/limit.h"
#include "edge/function.h"
#include "packet/rst.h"

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
	if (!spend(LIMIT_REFUSAL, 1))
		return verdict(NODE_DROP_LIMIT_REFUSAL, XDP_DROP);
	if (reset_port(ctx, &s->packet))
		return verdict(NODE_DROP_NO_HEADROOM, XDP_DROP);
	reverse(&s->packet.t);
	s->changed = 1;
	s->kept = 1; /* no flow */
	count(NODE_REFUSED);
	bpf_tail_call(ctx, &node_functions, s->first + s->length);
	return verdict(NODE_DROP_NO_FUNCTION, XDP_DROP);
}
