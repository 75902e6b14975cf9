/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* unbound.h: a packet of the world to a public port that no node has bound to a client any more, as
 * the node is gone, or began again and gave the packet back. The client gets word, though it may
 * send nothing: of a segment a keep-alive, which it answers and is refused by a node; of a datagram
 * port unreachable. */
#pragma once
#include "edge/errors.h"
#include "edge/instances.h"
#include "edge/rewrite_end.h"
#include "edge/scratch.h"
#include "packet/bare_segment.h"

/* keep_alive turns the world's segment of a flow into a keep-alive (RFC 9293 §3.8.4) to its client.
 * The world repeats the first segment that was not acknowledged; the byte before it is a byte that the
 * client has, so the client answers, and a node refuses the answer with a RST of the number that the
 * client waits for. A RST from here would have the world's number, which is another number if
 * acknowledgements were lost. Window and options are the world's, as a client may drop a segment
 * without its timestamps (RFC 7323 §3.2). p->t has the public end first. */
static __always_inline int keep_alive(struct xdp_md *ctx, struct packet *p, struct edge_flow *f,
				      const struct edge_flow *client)
{
	struct segment g = {
		.from = p->t.vip,
		.to = client->end,
		.from_port_be = p->t.vip_port_be,
		.to_port_be = client->end_port_be,
		.seq = p->seq - 1,
		.ack = p->ack,
		.flags = TCP_ACK,
	};
	__u64 mac = link_address(ctx);
	struct segment_rest rest;

	if (f->keepalives >= MAX_KEEPALIVES)
		return verdict(EDGE_DROP_UNSOLICITED, XDP_DROP);
	if (!mac || !may_tell(LIMIT_REFUSAL, &g.to, edge_service_of(client->word)))
		return verdict(EDGE_DROP_LIMIT_REFUSAL, XDP_DROP);
	f->keepalives++;
	if (!read_rest(ctx, p, &rest))
		return verdict(EDGE_DROP_MALFORMED, XDP_DROP);
	if (write_segment(ctx, p, &g, &rest))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	return send_own(ctx, p, mac, EDGE_KEEPALIVE);
}

/* turn_ends gives the datagram its source for its destination and the other way, by which no checksum
 * changes. p->t follows. */
static __always_inline bool turn_ends(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	__be16 *ports;

	reverse(&p->t);
	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return false;
		copy_address(&ip->saddr, &p->t.client);
		copy_address(&ip->daddr, &p->t.vip);
	} else {
		struct iphdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return false;
		ip->saddr = p->t.client.s6_addr32[3];
		ip->daddr = p->t.vip.s6_addr32[3];
	}
	if (p->kind != KIND_UDP)
		return true; /* an echo has one identifier */
	c = frame_at(ctx, frame_offset(&p->l4));
	ports = take(&c, 2 * sizeof(*ports));
	if (!ports)
		return false;
	ports[0] = p->t.client_port_be;
	ports[1] = p->t.vip_port_be;
	return true;
}

/* show_as_sent turns the world's datagram into a datagram that the client of an entry sent there, of which an
 * error can speak to the client. p->t has the public end first, and gets the client's. */
static __always_inline bool show_as_sent(struct xdp_md *ctx, struct packet *p,
					 const struct edge_flow *client)
{
	reverse(&p->t); /* as in the packet */
	return replace_end(ctx, p, END_DESTINATION, &client->end, client->end_port_be) &&
	       turn_ends(ctx, p);
}

/* edge_unbound handles a packet of the world to a public end that no node has bound to a client any
 * more: the client gets word. A program of its own: the callers' chain has no stack left, in Linux 6.1. */
SEC("xdp")
int edge_unbound(struct xdp_md *ctx)
{
	struct edge_scratch *s = edge_scratch();
	const struct edge_flow *before;
	struct edge_flow *f;
	struct packet *p;
	__u64 partner;

	if (!s)
		return XDP_ABORTED;
	p = &s->packet;
	f = edge_flow_of(p->hash);
	partner = f ? f->partner : 0;
	before = edge_flow_of(partner);
	if (!f || !before || before->partner != p->hash || p->kind == KIND_ERROR ||
	    edge_service_at(&p->t.client))
		return verdict(EDGE_DROP_UNSOLICITED, XDP_DROP);
	if (p->kind == KIND_TCP)
		return keep_alive(ctx, p, f, before);
	return show_as_sent(ctx, p, before) ? end_flow(ctx, p, partner)
					    : verdict(EDGE_DROP_MALFORMED, XDP_DROP);
}

/* given_back handles a packet for which its flow's node has no binding. */
static __always_inline int given_back(struct xdp_md *ctx, struct edge_scratch *s)
{
	const struct edge_flow *f = edge_flow_of(s->packet.hash);

	if (!f || s->side != SIDE_WORLD)
		return verdict(EDGE_DROP_UNSOLICITED, XDP_DROP);
	if (edge_server(READ_ONCE(f->word)) != edge_server(s->outer.vni))
		return verdict(EDGE_DROP_WRONG_INSTANCE, XDP_DROP);
	bpf_tail_call(ctx, &edge_programs, PROGRAM_UNBOUND);
	return XDP_ABORTED;
}
