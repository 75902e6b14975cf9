/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* tuple.h: the flow of a packet at the edge: TCP and UDP by their ports, ICMP echo by its
 * identifier, and a packet too big by the packet that it quotes. Both directions of a flow have
 * one tuple and so one entry: they cannot part. */
#pragma once
#include "packet/header.h"

/* read_echo gives an echo request or its answer its identifier as both ports. */
static __always_inline bool read_echo(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, frame_offset(&p->l4));
	struct icmp *icmp = take(&c, sizeof(*icmp));
	__be16 id;

	if (!icmp)
		return false;
	if (p->family == 4 && icmp->type != ICMP4_ECHO && icmp->type != ICMP4_ECHO_REPLY)
		return false;
	if (p->family == 6 && icmp->type != ICMP6_ECHO && icmp->type != ICMP6_ECHO_REPLY)
		return false;
	id = *(__be16 *)&icmp->rest;
	set_ports(&p->t, id, id);
	p->kind = KIND_ECHO;
	return true;
}

/* shows_flow: the packet, as read_at read it, has a flow, and p->t names both ends with ports. */
static __always_inline bool shows_flow(struct xdp_md *ctx, struct packet *p)
{
	if (p->kind == KIND_TCP || p->kind == KIND_UDP || p->kind == KIND_TOO_BIG)
		return true;
	if (p->kind != KIND_OTHER && p->kind != KIND_ECHO)
		return false;
	if (p->t.protocol != (p->family == 6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return false;
	return read_echo(ctx, p);
}

/* is_ordered: the client's end comes before the other end, by any order. */
static __always_inline bool is_ordered(const struct tuple *t)
{
	const __u64 *a = (const void *)&t->client, *b = (const void *)&t->vip;

	if (a[1] != b[1])
		return a[1] < b[1];
	if (a[0] != b[0])
		return a[0] < b[0];
	return t->client_port_be <= t->vip_port_be;
}

/* symmetric is the tuple of both directions. */
static __always_inline void symmetric(struct tuple *t)
{
	if (!is_ordered(t))
		reverse(t);
}
