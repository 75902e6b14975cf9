/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* long_packets.h: client packets that are too long for XDP, which sends each frame as it is. XDP leaves
 * them to the stack (LB_PASS_LONG), where tc's way in sends them as several:
 *
 *   super-packets      segments that GRO, or a virtual link's other end, joined into one packet:
 *                      the link segments them again, with our headers in each
 *   IPv4 without DF    two fragments, as a router may (RFC 791 §2.3); the server's stack joins
 *                      them. Fragments show no ports, so dt carries them. A datagram that one
 *                      segment fits, but no list, goes whole. */
#pragma once
#include "lb/long_agentless.h"
#include "lb/unserved.h"
#include "packet/outer_headers.h"
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

/* Of a type that __sk_buff points to. The compiler writes the names of such types by their places
 * in its memory, which depend on the folder's name: with either of the two written as a whole, the
 * object is the same everywhere. */
const volatile struct bpf_sock *const no_socket = 0;

/* long_service is the service of a packet that may be long, or NULL. */
static __always_inline const struct service *long_service(const struct packet *p)
{
	if (p->kind == KIND_FRAGMENT)
		return vip_at(&p->t.vip);
	return p->kind == KIND_TCP || p->kind == KIND_UDP ? service_of(p) : NULL;
}

/* is_steered: an agent made the flow's entry, so that its packets go in `as`. */
static __always_inline bool is_steered(const struct service *svc, __u64 word)
{
	if (tracking_of(svc) == TRACK_FLOWS)
		return word;
	return word & WORD_ESTABLISHED && !(word & WORD_KEPT);
}

/* long_route writes the route to the flow's server, or to its first candidate. Returns COUNTERS,
 * or the reason to drop the packet. */
static __always_inline enum counter long_route(struct scratch *scr, const struct service *svc,
					       bool whole)
{
	const struct packet *p = &scr->packet;
	struct destination d;
	struct server *s;
	__u64 word = 0;

	first_candidate(p, svc, &d);
	if (tracking_of(svc) != TRACK_NONE)
		word = flow_find(p->hash, false);
	if (word && p->kind == KIND_UDP)
		word = unless_down(p, word);
	if (word)
		d.server = server_in_word(word);
	if (whole && is_steered(svc, word)) {
		d.function = FN_ACK_STICKINESS;
		d.generation = generation_in_word(word);
	}
	s = server_at(d.server);
	if (!s)
		return LB_DROP_NO_SERVER;
	if (delivery_of(s) == DELIVERY_SEG6) {
		d.function = FN_DELIVER;
		d.generation = argument_of(p);
		count(LB_BY_SEG6);
	}
	scr->destination = d;
	if (delivery_of(s) > DELIVERY_SEG6)
		return COUNTERS;
	if (!delivery_of(s) || begin_route(&scr->route, p, svc))
		return LB_DROP_NO_NEXT_HOP;
	add_server(&scr->route, s, make_sid(0, d.function, d.generation));
	return COUNTERS;
}

/* is_left: lb leaves such packets of a service to the stack, all others are its own. */
static __always_inline bool is_left(const struct packet *p, const struct service *svc)
{
	return p->length + route_bytes(svc->vias + 1, wire_of(p, svc)) > self.mtu ||
	       (!is_signalled(svc) && p->length > svc->mtu) || /* by a server's longest header */
	       (p->kind == KIND_UDP && p->divisible);
}

/* list_front is the SRH of a route with n segments listed, left of them to visit. */
static __always_inline struct srh list_front(__u8 next, __u32 n, __u32 left)
{
	return (struct srh){
		.next_header = next,
		.length = 2 * n,
		.type = SRH_TYPE,
		.segments_left = left,
		.last_entry = n - 1,
	};
}

/* write_front writes the route's headers, and n of its segments from begin on. */
static __always_inline bool write_front(struct __sk_buff *skb, const struct route *r,
					struct front *f, const struct srh *srh, __u32 begin,
					__u32 n)
{
	f->proto = bpf_htons(ETH_P_IPV6);
	__builtin_memcpy(f->to, r->mac, sizeof(f->to));
	own_mac(f->from);
	if (bpf_skb_store_bytes(skb, 0, f->to, FRONT_BYTES, 0))
		return false;
	return !n || (!bpf_skb_store_bytes(skb, SRH_AT, srh, sizeof(*srh), 0) &&
		      !bpf_skb_store_bytes(skb, SRH_AT + sizeof(*srh),
					   &r->list[begin % MAX_SEGMENTS], list_bytes(n), 0));
}

/* encapsulate_long puts the route's headers before the packet (RFC 8986 §5.2, H.Encaps.Red). */
static __always_inline bool encapsulate_long(struct __sk_buff *skb, const struct packet *p,
					     struct route *r, const struct in6_addr *from)
{
	__u32 bytes = route_bytes(r->n, WIRE_ENCAP), shown = r->n - 1;
	__u32 length = skb->len - ETH_BYTES + bytes - sizeof(struct ipv6hdr);
	struct srh srh = list_front(protocol_inside(p), shown, shown);
	struct front f = {};

	outer_header(&f.ip, from, (const void *)segment_of(r, 0), p->class, flow_label(&p->t),
		     length, shown ? IPPROTO_ROUTING : protocol_inside(p));
	return length <= 0xffff && room_before(skb, bytes) &&
	       write_front(skb, r, &f, &srh, FIRST_SEGMENT - shown, shown);
}

/* insert_long puts (sender, segments…, destination) into the packet itself. */
static __always_inline bool insert_long(struct __sk_buff *skb, struct route *r,
					const struct in6_addr *from)
{
	__u32 bytes = route_bytes(r->n, WIRE_INSERT);
	__u32 length = skb->len - ETH_BYTES + bytes - sizeof(struct ipv6hdr);
	struct cursor c = frame_at(skb, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip));
	struct front f = {};
	struct srh srh;

	if (!ip || length > 0xffff)
		return false;
	f.ip = *ip;
	srh = list_front(f.ip.nexthdr, r->n + 2, r->n);
	copy_address((void *)segment_of(r, r->n), &f.ip.daddr);
	copy_address((void *)&r->list[FIRST_SEGMENT + 1], from);
	copy_address(&f.ip.daddr, (const void *)segment_of(r, 0));
	f.ip.nexthdr = IPPROTO_ROUTING;
	f.ip.payload_len = bpf_htons(length);
	return !bpf_skb_adjust_room(skb, bytes, BPF_ADJ_ROOM_NET, 0) &&
	       write_front(skb, r, &f, &srh, FIRST_SEGMENT - r->n, r->n + 2);
}

/* add_front adds the route's headers, by the wire of its service. */
static __always_inline bool add_front(struct __sk_buff *skb, const struct packet *p,
				      struct route *r)
{
	struct in6_addr from = own_address(UNTAGGED, flow_label(&p->t));

	return r->wire == WIRE_INSERT ? insert_long(skb, r, &from)
				      : encapsulate_long(skb, p, r, &from);
}

/* write_length writes the payload length of the outer header. */
static __always_inline bool write_length(struct __sk_buff *skb, __u16 length)
{
	__be16 field = bpf_htons(length);

	return !bpf_skb_store_bytes(skb, ETH_BYTES + offsetof(struct ipv6hdr, payload_len), &field,
				    sizeof(field), 0);
}

/* send_in_fragments sends the packet as two. The first has all that fits a frame; the rest waits
 * on the stack meanwhile. */
__noinline int send_in_fragments(struct __sk_buff *skb, struct scratch *scr)
{
	__u32 head, headers, at, first, rest;
	__u8 kept[MAX_REST];
	__u16 word;

	if (!scr)
		return TC_ACT_SHOT;
	head = head_bytes(&scr->packet);
	headers = route_bytes(scr->route.n, WIRE_ENCAP) + head;
	first = (self.mtu - headers) & ~7U;
	rest = scr->packet.length - head - first;
	at = ETH_BYTES + head + first;
	if (rest < 1 || rest > MAX_REST || bpf_skb_load_bytes(skb, at, kept, rest_bytes(rest)))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	word = fragment_word(skb);
	if (bpf_skb_change_tail(skb, at, 0) ||
	    !write_piece(skb, ETH_BYTES, head + first, word | IP_MORE_FRAGMENTS) ||
	    !add_front(skb, &scr->packet, &scr->route) || bpf_clone_redirect(skb, skb->ifindex, 0))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	at = ETH_BYTES + headers;
	if (bpf_skb_change_tail(skb, at + rest, 0) ||
	    bpf_skb_store_bytes(skb, at, kept, rest_bytes(rest), 0) ||
	    !write_piece(skb, at - head, head + rest, word + first / 8) ||
	    !write_length(skb, headers + rest - sizeof(struct ipv6hdr)))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	count(LB_SENT_IN_FRAGMENTS);
	return bpf_redirect(skb->ifindex, 0);
}

/* send_whole sends a datagram, or a super-packet, whose segments the kernel shortens by our
 * headers. */
__noinline int send_whole(struct __sk_buff *skb, struct scratch *scr, enum counter reason)
{
	if (!scr || !add_front(skb, &scr->packet, &scr->route))
		return verdict(LB_DROP_SUPER_PACKET, TC_ACT_SHOT);
	count(reason);
	return bpf_redirect(skb->ifindex, 0);
}

/* send_long sends a client's packet that XDP left to the stack. */
static __always_inline int send_long(struct __sk_buff *skb, struct scratch *scr,
				     const struct service *svc)
{
	const struct packet *p = &scr->packet;
	bool joined = skb->gso_size, whole;
	const struct server *s;
	enum counter reason;

	if (!joined && (!p->divisible || p->length > self.mtu))
		return verdict(LB_DROP_SUPER_PACKET, TC_ACT_SHOT);
	whole = joined || p->length + route_bytes(svc->vias + 1, wire_of(p, svc)) <= self.mtu;
	scr->packet.hash = digest(&p->t);
	reason = long_route(scr, svc, whole);
	if (reason != COUNTERS)
		return verdict(reason, TC_ACT_SHOT);
	if (count_hop(frame_at(skb, ETH_BYTES), &scr->packet))
		return verdict(LB_DROP_HOP_LIMIT, TC_ACT_SHOT);
	s = server_at(scr->destination.server);
	if (s && delivery_of(s) == DELIVERY_L2)
		return send_l2_long(skb, p, s);
	if (s && delivery_of(s) == DELIVERY_VXLAN)
		return send_vxlan_long(skb, scr, s);
	if (!whole)
		return send_in_fragments(skb, scr);
	return send_whole(skb, scr, joined ? LB_SENT_IN_SEGMENTS : LB_DELIVER);
}
