/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* narrow_link.h: a packet out of its tunnel that is too long for the link to its destination, and of which
 * functions changed the tuple. The kernel's error would quote an end that the sender does not know: a
 * client's own address to the world, or a public address to a client. */
#pragma once
#include "edge/errors.h"
#include "edge/rewrite_end.h"
#include "edge/scratch.h"

/* is_narrowed: no router may fragment the packet, and its sender knows it by another tuple. */
static __always_inline bool is_narrowed(const struct edge_scratch *s)
{
	return !s->packet.divisible && s->packet.hash != s->outer.flow;
}

/* edge_narrow answers the packet as it was before the change: the flow's entry has the end that was
 * changed. p->t has the client network's end first. */
SEC("xdp")
int edge_narrow(struct xdp_md *ctx)
{
	struct edge_scratch *s = edge_scratch();
	enum edge_endpoint changed = END_SOURCE;
	const struct edge_flow *before;
	struct packet *p;

	if (!s)
		return XDP_ABORTED;
	p = &s->packet;
	before = edge_flow_of(s->outer.flow);
	if (!before)
		return verdict(EDGE_DROP_UNKNOWN_FLOW, XDP_DROP);
	if (s->side == SIDE_WORLD) {
		reverse(&p->t);
		changed = END_DESTINATION;
	}
	if (!replace_end(ctx, p, changed, &before->end, before->end_port_be))
		return verdict(EDGE_DROP_MALFORMED, XDP_DROP);
	return too_big(ctx, p, p->mtu);
}
