/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* verdicts.h: the verdicts on packets that are not forwarded: those of no service,
 * those without ports, and malformed ones. */
#pragma once
#include "lb/dispatch.h"

/* has_ports: the packet shows the ports of its service. */
static __always_inline bool has_ports(const struct packet *p)
{
	return p->kind >= KIND_TCP && p->kind <= KIND_TOO_BIG;
}

/* without_ports decides on a packet that shows no ports, or those of no service. */
__noinline int without_ports(struct xdp_md *ctx, struct packet *p)
{
	const struct service *vip = p ? vip_at(&p->t.vip) : NULL;
	struct destination d;

	if (!vip)
		return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	if (p->reading == TRUNCATED && !has_ports(p))
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	switch (p->kind) {
	case KIND_FRAGMENT:
		if (!vip->buckets || tracking_of(vip) != TRACK_NONE)
			return verdict(LB_DROP_FRAGMENT, XDP_DROP);
		first_candidate(p, vip, &d);
		return send_routed(ctx, p, vip, &d);
	case KIND_EXTENSION:
		return verdict(LB_DROP_EXTENSION_HEADER, XDP_DROP);
	case KIND_ECHO:
		return write_echo_reply(ctx, p) ? verdict(LB_DROP_TRUNCATED, XDP_DROP)
						: transmit(LB_ECHO_REPLY);
	case KIND_UDP: /* or TCP, of another port */
	default:
		return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	}
}

/* drop_reason returns the reason to drop a packet of a service, or COUNTERS. If the length of
 * an ICMP error ends before the ports it quotes, those were link padding: the error is
 * malformed. A function of its own, as few packets need it. */
__noinline int drop_reason(const struct packet *p)
{
	if (!p || p->reading == MALFORMED)
		return LB_DROP_MALFORMED_TRANSPORT;
	if (p->kind == KIND_TOO_BIG &&
	    p->length < 2 * ip_bytes(p) + sizeof(struct icmp) + 2 * sizeof(__be16))
		return LB_DROP_MALFORMED_TRANSPORT;
	if (p->reading != READ)
		return LB_DROP_TRUNCATED;
	if (p->kind == KIND_TOO_BIG && p->family == 6 && p->mtu < MIN_MTU6)
		return LB_DROP_SMALL_MTU;
	return COUNTERS;
}

/* malformed_sr is the verdict on an SR packet that cannot be opened. */
__noinline int malformed_sr(int how)
{
	switch (how) {
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
