/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* icmp.h: ICMP errors about the LB's own outer packets. A router reports that one of
 * them was too big; the client gets the report for its packet (RFC 2473 §7.1). All others end
 * here: their destination is no address of the host, so a kernel that forwards would send them
 * back to the router. */
#pragma once
#include "lb/health.h"
#include "lb/unserved.h"
#include "lb/vxlan.h"

/* Offset of our outer header in a router's ICMP error. */
#define QUOTED_AT (SRH_AT + (__u32)sizeof(struct icmp))

/* quoted_inner returns the offset of the client's packet in an ICMP error that quotes any of
 * our outer packets, or 0: the quote is of a connection of the host's own, or cut short. */
static __always_inline __u32 quoted_inner(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, QUOTED_AT);
	struct ipv6hdr *outer = take(&c, sizeof(*outer));
	struct srh *srh;

	if (!outer || outer->version != 6 || !is_own(&outer->saddr))
		return 0;
	if (outer->nexthdr == IPPROTO_IPV6 || outer->nexthdr == IPPROTO_IPIP)
		return QUOTED_AT + sizeof(*outer);
	if (outer->nexthdr == IPPROTO_UDP) /* VXLAN alone has such a source */
		return QUOTED_AT + sizeof(*outer) + VXLAN_BYTES;
	srh = take(&c, sizeof(*srh));
	if (!srh || outer->nexthdr != IPPROTO_ROUTING || srh->type != SRH_TYPE)
		return 0;
	return QUOTED_AT + sizeof(*outer) + sizeof(*srh) + srh->length * 8;
}

/* note_error counts an ICMP error at the server that the quoted outer packet was on its way to. */
static __always_inline void note_error(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, QUOTED_AT);
	const struct ipv6hdr *outer = take(&c, sizeof(*outer));
	__u32 server = outer ? number_of(((const struct sid *)&outer->daddr)->locator_be)
			     : NO_SERVER;

	if (server != NO_SERVER)
		note_unreachable(server);
}

#define UNQUOTED (-1)

/* unquote strips the frame of a packet too big about an outer packet of ours to the client's
 * packet that it quotes, and returns UNQUOTED and the MTU for that; else it returns a verdict on
 * the ICMP packet. */
static __always_inline int unquote(struct xdp_md *ctx, __u32 *quoted)
{
	struct cursor c = frame_at(ctx, SRH_AT);
	struct icmp *icmp = take(&c, sizeof(*icmp));
	__u32 at, mtu;

	if (!icmp || icmp->type >= ICMP6_ECHO)
		return verdict(LB_PASS_OWN_ADDRESS, XDP_PASS);
	mtu = bpf_ntohl(icmp->rest);
	at = quoted_inner(ctx);
	if (!at)
		return verdict(LB_PASS_OWN_ADDRESS, XDP_PASS);
	if (icmp->type != ICMP6_TOO_BIG) {
		note_error(ctx);
		return verdict(LB_DROP_ICMP_ERROR, XDP_DROP);
	}
	if (mtu <= at - QUOTED_AT)
		return verdict(LB_DROP_MALFORMED_TOO_BIG, XDP_DROP);
	if (bpf_xdp_adjust_head(ctx, at - ETH_BYTES))
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);
	*quoted = mtu - (at - QUOTED_AT);
	return UNQUOTED;
}

/* translate_too_big sends the client a packet too big about its own packet in place of a
 * router's about our outer packet (RFC 2473 §7.1). */
__noinline int translate_too_big(struct xdp_md *ctx, const struct packet *p, __u32 mtu)
{
	const struct next_hop *hop;

	if (!p || (p->reading != READ && p->reading != IN_PART) || !has_ports(p) || !service_of(p))
		return verdict(LB_DROP_MALFORMED_TOO_BIG, XDP_DROP);
	if (p->kind == KIND_TOO_BIG) /* no error about an error (RFC 4443 §2.4) */
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	if (!may_answer(LIMIT_TOO_BIG, p))
		return verdict(LB_DROP_LIMIT_TOO_BIG, XDP_DROP);
	hop = next_hop_to(&p->t.client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (write_too_big(ctx, p, mtu) || link_to(ctx, hop->mac, p->family))
		return verdict(LB_DROP_MALFORMED_TOO_BIG, XDP_DROP);
	return transmit(LB_TOO_BIG_TRANSLATED);
}

/* is_icmp_to_us: the frame has an ICMP packet for a SID of this node or its own address. */
static __always_inline bool is_icmp_to_us(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	const struct ipv6hdr *ip = take(&c, sizeof(*ip));

	return ip && ip->version == 6 && ip->nexthdr == IPPROTO_ICMPV6 && is_own(&ip->daddr);
}

static __always_inline int icmp_to_us(struct xdp_md *ctx, struct scratch *scr)
{
	struct packet *p = &scr->packet;
	struct cursor c;
	__u32 mtu = 0;
	int action;

	action = unquote(ctx, &mtu);
	if (action != UNQUOTED)
		return action;
	c = frame_at(ctx, 0);
	p->reading = read_at(c.pos, c.end, ETH_BYTES, p, INWARD);
	if (hides(p))
		p->reading = xdp_read_upper(ctx, p);
	barrier(); /* from here on the verifier looks at all kinds of packets at once */
	return translate_too_big(ctx, p, mtu);
}
