/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* wrap.h: what an answer on its way out tells the LB, and how. */
#pragma once
#include "conn.h"
#include "nexthop.h"

/* wrap puts the answer into [lb::fn] (RFC 8986 §5.2, one segment: no SRH), or
 * returns false: it must go without (a super-packet or one near the MTU). */
static __always_inline bool wrap(struct __sk_buff *skb, const struct tuple *t, const struct conn *c,
				 enum function fn, __u8 class)
{
	struct sid sid = make_sid(c->lb_be, fn, c->generation);
	struct in6_addr lb = sid_address(&sid);
	__u32 length = skb->len - sizeof(struct ethhdr);
	const struct next_hop *hop;
	struct ipv6hdr outer = {};

	if (skb->gso_segs > 1 || length + sizeof(outer) > self.mtu)
		return false;
	hop = next_hop_to(&lb);
	if (!hop || bpf_skb_adjust_room(skb, sizeof(outer), BPF_ADJ_ROOM_MAC,
					BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return false;
	outer_header(&outer, &lb, class, flow_label(t), length, IPPROTO_IPV6);
	bpf_skb_store_bytes(skb, 0, hop->mac, ETH_ALEN, 0);
	bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &outer, sizeof(outer), 0);
	return true;
}

/* signal decides what an outward packet must tell the LB. */
static __always_inline enum function signal(struct conn *c, const struct segment *s)
{
	if (s->tcp->rst)
		set(c, CONN_CLOSED);
	if (s->tcp->fin)
		set(c, CONN_SERVER_FIN);
	if (s->payload || s->tcp->fin || s->tcp->rst)
		answered(c);
	if (s->tcp->fin || s->tcp->rst)
		set(c, CONN_OWES);
	if (c->state == CONN_WAIT)
		return FN_CREATE_STICKINESS;
	return c->flags & CONN_OWES ? FN_REMOVE_STICKINESS : FN_NONE;
}
