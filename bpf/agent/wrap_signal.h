/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* wrap_signal.h: putting a packet to the client into a signal to the LB. */
#pragma once
#include "packet/auth.h"
#include "packet/outer_headers.h"
#include "packet/nexthop.h"
#include "packet/rewrite.h"
#include "packet/srv6.h"
#include <linux/pkt_cls.h>

static __always_inline bool front_towards(struct __sk_buff *skb, const __u8 *to, struct front *f)
{
	struct cursor c = frame_at(skb, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));

	if (!eth)
		return false;
	__builtin_memcpy(f->to, to, ETH_ALEN);
	__builtin_memcpy(f->from, eth->h_source, ETH_ALEN);
	f->proto = bpf_htons(ETH_P_IPV6);
	return true;
}

/* encapsulate_out puts the packet into [lb::fn] (RFC 8986 §5.2, one segment: no SRH). */
static __always_inline bool encapsulate_out(struct __sk_buff *skb, const struct packet *p,
					    const struct sid *to, const struct key *key,
					    struct front *f)
{
	__u32 label = flow_label(&p->t);
	struct in6_addr from = own_address(key ? tag_of_one(key, &p->t, to) : UNTAGGED, label);
	struct in6_addr lb = sid_address(to);
	__u32 length = skb->len - ETH_BYTES;

	if (bpf_skb_adjust_room(skb, sizeof(f->ip), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return false;
	outer_header(&f->ip, &from, &lb, p->class, label, length,
		     p->family == 6 ? IPPROTO_IPV6 : IPPROTO_IPIP);
	bpf_skb_store_bytes(skb, 0, f->to, FRONT_BYTES, 0);
	return true;
}

/* The SRH of an inserted signal, last segment first (RFC 8754 §2). */
struct inserted {
	struct srh srh;
	struct in6_addr client;
	struct sid lb;
	struct in6_addr self;
};

/* insert_out inserts (self, lb::fn, client). The transport checksum is by the last segment
 * (RFC 8200 §8.1), which stays the client. */
static __always_inline bool insert_out(struct __sk_buff *skb, const struct packet *p,
				       const struct sid *to, const struct key *key, struct front *f)
{
	struct inserted in = {
		.srh = {
			.next_header = p->t.protocol,
			.length = (sizeof(in) - sizeof(in.srh)) / 8,
			.type = SRH_TYPE,
			.segments_left = 1,
			.last_entry = 2,
		},
		.client = p->t.client,
		.lb = *to,
		.self = own_address(UNTAGGED, flow_label(&p->t)),
	};
	struct cursor c = frame_at(skb, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip));

	if (!ip)
		return false;
	f->ip = *ip;
	if (key) {
		struct sip s = tag_start(key, &p->t, self.locator_be);

		tag_segment(&s, &in.client);
		tag_segment(&s, &in.lb);
		in.self = own_address(tag_end(&s, 2), 0);
	}
	if (bpf_skb_adjust_room(skb, sizeof(in), BPF_ADJ_ROOM_NET, 0))
		return false;
	f->ip.payload_len = bpf_htons(bpf_ntohs(f->ip.payload_len) + sizeof(in));
	f->ip.nexthdr = IPPROTO_ROUTING;
	f->ip.daddr = sid_address(to);
	bpf_skb_store_bytes(skb, 0, f->to, FRONT_BYTES, 0);
	bpf_skb_store_bytes(skb, SRH_AT, &in, sizeof(in), 0);
	return true;
}

_Static_assert(CONN_CLIENT_FIN << 3 == SID_CLIENT_CLOSED &&
		       CONN_SERVER_FIN << 3 == SID_SERVER_CLOSED,
	       "the flags of a signal are those of the entry");

/* wrap makes the packet a signal. Returns false if it must go straight to the client: it is
 * a super-packet, or near the MTU, or the LB has no next hop. */
static __always_inline bool wrap(struct __sk_buff *skb, const struct packet *p,
				 const struct conn *c, __u8 wire, enum function fn)
{
	struct sid sid = make_sid(c->lb_be, fn, c->generation);
	const struct signal_key *k = signing_key();
	const struct key *key = k ? &k->key : NULL;
	struct in6_addr lb;
	const struct next_hop *hop;
	struct front f;

	if (p->options) /* as in lb/segment_list.h, wire_of */
		wire = WIRE_ENCAP;
	if (skb->gso_segs > 1 || skb->len - ETH_BYTES + route_bytes(1, wire) > self.mtu)
		return false;
	sid.flags = (c->flags & CONN_CLOSED) << 3;
	if (k)
		sid.key_id = k->id;
	lb = sid_address(&sid);
	hop = next_hop_to(&lb);
	if (!hop || !front_towards(skb, hop->mac, &f))
		return false;
	return wire == WIRE_INSERT ? insert_out(skb, p, &sid, key, &f)
				   : encapsulate_out(skb, p, &sid, key, &f);
}
