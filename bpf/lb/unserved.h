/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* unserved.h: the verdicts on packets that are not forwarded: those of no service,
 * those without ports, and malformed packets. */
#pragma once
#include "lb/allow.h"
#include "lb/dispatch.h"
#include "lb/refuse.h"
#include "packet/echo.h"

/* has_ports: the packet shows the ports of its service. */
static __always_inline bool has_ports(const struct packet *p)
{
	return p->kind >= KIND_TCP && p->kind <= KIND_TOO_BIG;
}

/* is_cut: the frame ends before its packet. A frame of several buffers (xdp.frags) may be longer
 * than its first part, which the program reads. */
static __always_inline bool is_cut(struct xdp_md *ctx, const struct packet *p)
{
	return p->reading == TRUNCATED ||
	       (p->reading == IN_PART && ETH_BYTES + p->length > bpf_xdp_get_buff_len(ctx));
}

/* drop_reason returns the reason to drop a packet of a service, or COUNTERS. If the length of
 * an ICMP error ends before the ports it quotes, those were link padding: the error is
 * malformed. A function of its own, as few packets need it. */
__noinline int drop_reason(struct xdp_md *ctx, const struct packet *p)
{
	if (!p || p->reading == MALFORMED)
		return LB_DROP_MALFORMED_TRANSPORT;
	if (p->kind == KIND_TOO_BIG &&
	    p->length < head_bytes(p) + ip_bytes(p) + sizeof(struct icmp) + 2 * sizeof(__be16))
		return LB_DROP_MALFORMED_TRANSPORT;
	if (is_cut(ctx, p))
		return LB_DROP_TRUNCATED;
	if (p->kind == KIND_TOO_BIG && p->family == 6 && p->mtu < MIN_MTU6)
		return LB_DROP_SMALL_MTU;
	return COUNTERS;
}

/* vip_of returns the record of the VIP that the frame's packet is for, or NULL. An ICMP error has
 * the addresses of the packet that it quotes in p. */
static __always_inline const struct service *vip_of(struct xdp_md *ctx, const struct packet *p)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct in6_addr to;

	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return NULL;
		to = ip->daddr;
	} else {
		struct iphdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return NULL;
		to = mapped(ip->daddr);
	}
	return vip_at(&to);
}

/* is_for_vip: the frame's packet is for a VIP. A function of its own, for its stack. */
__noinline bool is_for_vip(struct xdp_md *ctx, const struct packet *p)
{
	return p && vip_of(ctx, p);
}

/* without_ports decides on a packet that shows no ports, or those of no service. */
__noinline int without_ports(struct xdp_md *ctx, struct packet *p)
{
	const struct service *vip = p ? vip_of(ctx, p) : NULL;
	struct destination d;
	int reason;

	if (!vip)
		return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	if (!has_ports(p) && is_cut(ctx, p))
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	switch (p->kind) {
	case KIND_FRAGMENT:
		if (!vip->buckets || tracking_of(vip) != TRACK_NONE)
			return verdict(LB_DROP_FRAGMENT, XDP_DROP);
		if (is_stranger(p, vip))
			return verdict(LB_DROP_NOT_ALLOWED, XDP_DROP);
		if (p->hop_limit <= 1)
			return expired(ctx, p);
		first_candidate(p, vip, &d);
		return send_routed(ctx, p, vip, &d);
	case KIND_EXTENSION:
		return verdict(LB_DROP_EXTENSION_HEADER, XDP_DROP);
	case KIND_SOURCE_ROUTE:
		return verdict(LB_DROP_SOURCE_ROUTE, XDP_DROP);
	case KIND_ECHO:
		if (!is_one_node(&p->t.client))
			return verdict(LB_DROP_UNSERVED, XDP_DROP);
		if (!may_answer(LIMIT_ECHO, p))
			return verdict(LB_DROP_LIMIT_ECHO, XDP_DROP);
		return write_echo_reply(ctx, p) ? verdict(LB_DROP_TRUNCATED, XDP_DROP)
						: transmit(LB_ECHO_REPLY);
	case KIND_TCP:
	case KIND_UDP:
		reason = drop_reason(ctx, p);
		return reason == COUNTERS ? refuse_port(ctx, p) : verdict(reason, XDP_DROP);
	default:
		if (is_discovery(ctx, p))
			return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
		return verdict(LB_DROP_UNSERVED, XDP_DROP);
	}
}

/* malformed_sr is the verdict on an SR packet that cannot be opened. */
__noinline int malformed_sr(int how)
{
	switch (how) {
	case FROM_OUTSIDE:
		return verdict(LB_DROP_OUTSIDE, XDP_DROP);
	case WITH_TLVS:
		return verdict(LB_DROP_TLV, XDP_DROP);
	case MALFORMED_SRH:
		return verdict(LB_DROP_MALFORMED_SRH, XDP_DROP);
	case MALFORMED_TRANSPORT:
		return verdict(LB_DROP_MALFORMED_TRANSPORT, XDP_DROP);
	case NOTHING_INSIDE:
		return verdict(LB_DROP_NOTHING_INSIDE, XDP_DROP);
	default:
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	}
}
