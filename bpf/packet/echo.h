/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* echo.h: answers to ICMP echo requests for addresses that the LB serves. */
#pragma once
#include "packet/srv6.h"

/* write_echo_reply turns an echo request into its reply, which differs in type and direction
 * alone, so the sum of the addresses stays. */
static __always_inline enum rewritten write_echo_reply(struct xdp_md *ctx, const struct packet *p)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	__u8 *icmp;
	__u16 *word, was;
	__sum16 *check;

	if (!eth || p->length < head_bytes(p) + sizeof(struct icmp))
		return FRAME_TRUNCATED;
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	own_mac(eth->h_source);
	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return FRAME_TRUNCATED;
		ip->saddr = p->t.vip;
		ip->daddr = p->t.client;
		ip->hop_limit = OUTER_HOP_LIMIT;
	} else {
		struct iphdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return FRAME_TRUNCATED;
		ip->saddr = p->t.vip.s6_addr32[3];
		ip->daddr = p->t.client.s6_addr32[3];
		word = (void *)&ip->ttl;
		was = *word;
		ip->ttl = OUTER_HOP_LIMIT;
		ip->check = replace_word(ip->check, was, *word);
	}
	c = frame_at(ctx, frame_offset(&p->l4));
	icmp = take(&c, 4);
	if (!icmp)
		return FRAME_TRUNCATED;
	word = (void *)icmp;
	check = (void *)icmp + 2;
	was = *word;
	*icmp = p->family == 6 ? ICMP6_ECHO_REPLY : 0;
	*check = replace_word(*check, was, *word);
	return REWRITTEN;
}
