/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* wrap.h: the signals in which packets to the client pass by the LB. */
#pragma once
#include "packet/auth.h"
#include "agent/conn.h"
#include "packet/nexthop.h"
#include "packet/rewrite.h"

/* The headers before the packet, written in one piece; on the stack the IP header is
 * aligned. */
struct front {
	__u16 unused;
	__u8 to[ETH_ALEN];
	__u8 from[ETH_ALEN];
	__be16 proto;
	struct ipv6hdr ip;
};

#define FRONT_BYTES (ETH_BYTES + (__u32)sizeof(struct ipv6hdr))

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
					    const struct sid *to, const struct key *key, struct front *f)
{
	__be64 tag = key ? tag_of_one(key, &p->t, to) : bpf_cpu_to_be64(UNTAGGED);
	struct in6_addr from = own_address(tag), lb = sid_address(to);
	__u32 length = skb->len - ETH_BYTES;

	if (bpf_skb_adjust_room(skb, sizeof(f->ip), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return false;
	outer_header(&f->ip, &from, &lb, p->class, flow_label(&p->t), length,
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
		.self = own_address(bpf_cpu_to_be64(UNTAGGED)),
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
		in.self = own_address(tag_end(&s, 2));
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

/* wrap makes the packet a signal. Returns false if it must go straight to the client: it is
 * a super-packet, or near the MTU, or the LB has no next hop. */
static __always_inline bool wrap(struct __sk_buff *skb, const struct packet *p,
				 const struct conn *c, enum function fn)
{
	__u8 wire = c->flags & CONN_INSERT && p->family == 6 ? WIRE_INSERT : WIRE_ENCAP;
	struct sid sid = make_sid(c->lb_be, fn, c->generation);
	const struct signal_key *k = signing_key();
	const struct key *key = k ? &k->key : NULL;
	struct in6_addr lb;
	const struct next_hop *hop;
	struct front f;

	if (skb->gso_segs > 1 || skb->len - ETH_BYTES + route_bytes(1, wire) > self.mtu)
		return false;
	if (k)
		sid.key_id = k->id;
	lb = sid_address(&sid);
	hop = next_hop_to(&lb);
	if (!hop || !front_towards(skb, hop->mac, &f))
		return false;
	return wire == WIRE_INSERT ? insert_out(skb, p, &sid, key, &f)
				   : encapsulate_out(skb, p, &sid, key, &f);
}

/* sent_before is true of a retransmission. */
static __always_inline bool sent_before(struct conn *c, const struct packet *p)
{
	__u32 end = p->seq + p->payload + !!(p->flags & TCP_SYN) + !!(p->flags & TCP_FIN);
	bool before = !set_flag(c, CONN_SPOKE) && (__s32)(end - c->next_out) <= 0;

	if (!before)
		c->next_out = end;
	return before && !(p->flags & TCP_RST) && (p->payload || p->flags & TCP_FIN);
}

/* signal_to_send returns the function in which an outward packet goes by the LB, or
 * FN_NONE. Of an embryonic connection only the SYN-ACK is a signal: any other packet may be
 * of an older connection that the kernel still has. Retransmitted data or FIN goes straight
 * to the client: the LB of the first signal may be dead. UDP has no end to signal. */
static __always_inline enum function signal_to_send(const struct conn_entry *e, const struct packet *p)
{
	bool ends = p->flags & (TCP_FIN | TCP_RST);
	struct conn *c = e->c;

	if (p->kind == KIND_UDP)
		pending_ended(c);
	if (p->flags & TCP_RST)
		set_flag(c, CONN_CLOSED);
	if (p->flags & TCP_FIN)
		set_flag(c, CONN_SERVER_FIN);
	if (p->payload || ends)
		request_ended(c);
	if (ends)
		set_flag(c, CONN_OWES);
	if (p->kind == KIND_TCP && !(p->flags & TCP_SYN) && (e->embryonic || sent_before(c, p)))
		return FN_NONE;
	if (c->state == CONN_WAIT)
		return FN_CREATE_STICKINESS;
	return c->flags & CONN_OWES ? FN_REMOVE_STICKINESS : FN_NONE;
}
