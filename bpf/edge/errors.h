/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* errors.h: ICMP errors of the LB about a packet that it cannot send to a node. They go to the
 * packet's source by the kernel's FIB, as a router's do. And word to a client of the world's packet
 * that no node can translate to it any more. */
#pragma once
#include "core/limit.h"
#include "edge/counters.h"
#include "edge/forward.h"
#include "edge/recent.h"
#include "edge/replace.h"
#include "edge/tuple.h"
#include "edge/tunnel.h"
#include "packet/icmp.h"
#include "packet/segment.h"

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
	return forward(ctx, p, reason, reason);
}

/* send_error is send_own of an ICMP error. */
static __always_inline int send_error(struct xdp_md *ctx, struct packet *p, __u64 own_mac,
				      __u32 reason)
{
	set_word(&p->t.protocol, p->family == 6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
	return send_own(ctx, p, own_mac, reason);
}

/* too_big answers a packet that leaves no room for the tunnel. p->t has its source first. */
static __always_inline int too_big(struct xdp_md *ctx, struct packet *p, const struct edge_end *e)
{
	__u32 mtu = e->mtu - sizeof(struct ipv6hdr) - sizeof(struct edge_vxlan);
	__u64 mac = link_address(ctx);

	if (p->kind == KIND_ERROR || !mac || !spend(LIMIT_TOO_BIG, 1))
		return verdict(EDGE_DROP_TOO_BIG, XDP_DROP);
	if (write_too_big(ctx, p, mtu))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	return send_error(ctx, p, mac, EDGE_TOO_BIG);
}

/* end_flow ends a flow of datagrams of which the public port went with its node: the client gets word of it,
 * and its next datagram begins another flow. p->t has the client first. */
static __always_inline int end_flow(struct xdp_md *ctx, struct packet *p, __u64 partner)
{
	__u64 hash = p->hash, mac = link_address(ctx);

	bpf_map_delete_elem(&edge_flows, &hash);
	bpf_map_delete_elem(&edge_flows, &partner);
	edge_end_era();
	if (!mac || !spend(LIMIT_REFUSAL, 1))
		return verdict(EDGE_DROP_LIMIT_REFUSAL, XDP_DROP);
	if (write_port_unreachable(ctx, p))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	return send_error(ctx, p, mac, EDGE_FLOW_ENDED);
}

/* keep_alive turns the world's segment into a keep-alive (RFC 9293 §3.8.4) to the client of an entry.
 * The world repeats the first segment that was not acknowledged; the byte before it is one that the
 * client has, so the client answers, and a node refuses the answer with a RST of the number that the
 * client waits for. A RST from here would have the world's number, which is another one if
 * acknowledgements were lost. Window and options are the world's, as a client
 * may drop a segment without its timestamps (RFC 7323 §3.2). p->t has the public end first. */
static __always_inline int keep_alive(struct xdp_md *ctx, struct packet *p,
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

	if (!mac || !spend(LIMIT_REFUSAL, 1))
		return verdict(EDGE_DROP_LIMIT_REFUSAL, XDP_DROP);
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

/* show_as_sent turns the world's datagram into one that the client of an entry sent there, of which an
 * error can speak to the client. p->t has the public end first, and gets the client's. */
static __always_inline bool show_as_sent(struct xdp_md *ctx, struct packet *p,
					 const struct edge_flow *client)
{
	reverse(&p->t); /* as in the packet */
	return replace_end(ctx, p, END_DESTINATION, &client->end, client->end_port_be) &&
	       turn_ends(ctx, p);
}
