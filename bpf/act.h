/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* act.h: what becomes of a request: delivered to our stack, passed on to the
 * next segment, or refused. */
#pragma once
#include "request.h"

/* deliver strips the outer headers and hands the packet to our own stack. */
static __always_inline int deliver(struct xdp_md *ctx, struct request *r, enum counter why)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u8 from[ETH_ALEN];
	struct cursor c;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return verdict(AGENT_DROP_TRUNCATED, XDP_DROP);
	if (!ecn_inward(r->s.ip, r->sr.outer))
		return verdict(AGENT_DROP_CONGESTED, XDP_DROP);
	__builtin_memcpy(from, eth->h_source, ETH_ALEN);
	if (bpf_xdp_adjust_head(ctx, r->sr.overhead))
		return verdict(AGENT_DROP_NO_HEADROOM, XDP_DROP);
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	if (!eth)
		return verdict(AGENT_DROP_TRUNCATED, XDP_DROP);
	own_mac(eth->h_dest);
	__builtin_memcpy(eth->h_source, from, ETH_ALEN);
	eth->h_proto = bpf_htons(ETH_P_IPV6);
	return verdict(why, XDP_PASS);
}

/* pass_on moves to the next segment (RFC 8754 §4.3.1.1); the caller has seen
 * that there is one. */
static __always_inline int pass_on(struct request *r, enum counter why)
{
	struct ethhdr *eth = (void *)r->sr.outer - sizeof(*eth);
	const struct next_hop *hop;

	if (r->sr.outer->hop_limit <= 1)
		return verdict(AGENT_DROP_HOP_LIMIT, XDP_DROP);
	hop = next_hop_to(r->sr.next);
	if (!hop)
		return verdict(AGENT_DROP_NO_NEXT_HOP, XDP_DROP);
	r->sr.outer->hop_limit--;
	r->sr.outer->daddr = *r->sr.next;
	r->sr.srh->segments_left--;
	link_header(eth, hop->mac);
	return transmit(why);
}

/* refuse answers for a last candidate whose accept queue is full. */
static __always_inline int refuse(struct xdp_md *ctx, struct request *r)
{
	const struct next_hop *hop;
	__u32 seq;

	if (r->o->on_full == FULL_DROP)
		return verdict(AGENT_REFUSE_FULL_DROP, XDP_DROP);
	hop = next_hop_to(&r->t.client);
	if (!hop)
		return verdict(AGENT_DROP_NO_NEXT_HOP, XDP_DROP);
	seq = bpf_ntohl(r->s.tcp->seq) + 1 + r->s.payload;
	if (!write_reset(ctx, &r->t, seq, r->sr.overhead, hop))
		return verdict(AGENT_DROP_NO_HEADROOM, XDP_DROP);
	return transmit(AGENT_REFUSE_FULL_RESET);
}
