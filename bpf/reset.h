/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* reset.h: the answer of a last candidate whose accept queue is full. Linux
 * would drop the SYN in silence, whatever tcp_abort_on_overflow says. */
#pragma once
#include "nexthop.h"
#include "srv6.h"

/* sum adds n 32-bit words in one's complement (RFC 1071). */
static __always_inline __u64 sum(const void *data, int n)
{
	const __u32 *word = data;
	__u64 total = 0;

	for (int i = 0; i < n; i++)
		total += word[i];
	return total;
}

static __always_inline __u16 fold(__u64 total)
{
	total = (total & 0xffffffff) + (total >> 32);
	total = (total & 0xffff) + (total >> 16);
	total = (total & 0xffff) + (total >> 16);
	total = (total & 0xffff) + (total >> 16);
	return ~total;
}

/* write_reset turns the packet in ctx into the RST that refuses the SYN of
 * flow t and acknowledges `next`, all that came with it (RFC 9293 §3.10.7.1),
 * sent to the client; `strip` bytes of outer headers go first. False: the
 * packet is unusable. */
static __always_inline bool write_reset(struct xdp_md *ctx, const struct tuple *t, __u32 next,
					__u32 strip, const struct next_hop *hop)
{
	const __u32 whole = sizeof(struct ethhdr) + sizeof(struct ipv6hdr) + sizeof(struct tcphdr);
	struct segment s;
	struct cursor c;
	struct ethhdr *eth;
	__u32 first;
	__u64 total;

	if (bpf_xdp_adjust_head(ctx, strip))
		return false;
	if (bpf_xdp_adjust_tail(ctx, whole - (ctx->data_end - ctx->data)))
		return false;
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	s.ip = take(&c, sizeof(*s.ip));
	s.tcp = take(&c, sizeof(*s.tcp));
	if (!eth || !s.ip || !s.tcp)
		return false;
	link_header(eth, hop->mac);
	first = bpf_htonl(6U << 28 | flow_label(t));
	__builtin_memcpy(s.ip, &first, sizeof(first));
	s.ip->payload_len = bpf_htons(sizeof(*s.tcp));
	s.ip->nexthdr = IPPROTO_TCP;
	s.ip->hop_limit = OUTER_HOP_LIMIT;
	s.ip->saddr = t->vip;
	s.ip->daddr = t->client;
	__builtin_memset(s.tcp, 0, sizeof(*s.tcp));
	s.tcp->source = t->vip_port_be;
	s.tcp->dest = t->client_port_be;
	s.tcp->ack_seq = bpf_htonl(next);
	s.tcp->doff = sizeof(*s.tcp) / 4;
	s.tcp->rst = 1;
	s.tcp->ack = 1;
	total = sum(&s.ip->saddr, 8) + sum(s.tcp, sizeof(*s.tcp) / 4);
	total += bpf_htonl(sizeof(*s.tcp)) + (__u64)bpf_htonl(IPPROTO_TCP);
	s.tcp->check = fold(total);
	return true;
}
