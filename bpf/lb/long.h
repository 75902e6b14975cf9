/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* long.h: client packets that are too long for XDP, which sends each frame as one. XDP leaves
 * them to the stack (LB_PASS_LONG), where tc's way in sends them as several:
 *
 *   super-packets      segments that GRO, or a virtual link's other end, joined into one packet:
 *                      the link segments them again, with our headers before each
 *   IPv4 without DF    two fragments, as a router may (RFC 791 §2.3); the server's stack joins
 *                      them. Fragments show no ports, so dt carries them. */
#pragma once
#include "lb/verdicts.h"
#include "packet/front.h"
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#define MAX_REST 128 /* bytes of a second fragment: those of our longest header (96), and up to 7 */

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
	if (word)
		d.server = server_in_word(word);
	if (whole && is_steered(svc, word)) {
		d.function = FN_ACK_STICKINESS;
		d.generation = generation_in_word(word);
	}
	s = server_at(d.server);
	if (!s)
		return LB_DROP_NO_SERVER;
	if (!s->ready || begin_route(&scr->route, svc))
		return LB_DROP_NO_NEXT_HOP;
	add_server(&scr->route, s, make_sid(0, d.function, d.generation));
	return COUNTERS;
}

/* room_before makes room before a packet. One that the kernel knows as encapsulated can be
 * segmented, but not shortened, as the second fragment is. */
static __always_inline bool room_before(struct __sk_buff *skb, __u32 bytes)
{
	const __u32 six =
		sizeof(struct ipv6hdr) - sizeof(struct iphdr); /* bpf_skb_change_proto's */

	if (skb->gso_size)
		return !bpf_skb_adjust_room(skb, bytes, BPF_ADJ_ROOM_MAC,
					    BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
	return !bpf_skb_change_proto(skb, bpf_htons(ETH_P_IPV6), 0) &&
	       !bpf_skb_adjust_room(skb, bytes - six, BPF_ADJ_ROOM_MAC, 0);
}

/* add_front puts the route's headers before the packet. */
static __always_inline bool add_front(struct __sk_buff *skb, const struct packet *p,
				      struct route *r)
{
	__u32 bytes = route_bytes(r->n, WIRE_ENCAP), shown = r->n - 1;
	__u32 label = flow_label(&p->t), length = skb->len - ETH_BYTES;
	struct in6_addr from = own_address(UNTAGGED, label);
	struct front f = { .proto = bpf_htons(ETH_P_IPV6) };
	struct srh srh = {
		.next_header = protocol_inside(p),
		.length = 2 * shown,
		.type = SRH_TYPE,
		.segments_left = shown,
		.last_entry = shown - 1,
	};

	if (length + bytes - sizeof(f.ip) > 0xffff || !room_before(skb, bytes))
		return false;
	__builtin_memcpy(f.to, r->mac, sizeof(f.to));
	own_mac(f.from);
	outer_header(&f.ip, &from, (const void *)segment_of(r, 0), p->class, label,
		     length + bytes - sizeof(f.ip), shown ? IPPROTO_ROUTING : protocol_inside(p));
	if (bpf_skb_store_bytes(skb, 0, f.to, FRONT_BYTES, 0))
		return false;
	return !shown || (!bpf_skb_store_bytes(skb, SRH_AT, &srh, sizeof(srh), 0) &&
			  !bpf_skb_store_bytes(skb, SRH_AT + sizeof(srh),
					       &r->list[(FIRST_SEGMENT - shown) % MAX_SEGMENTS],
					       list_bytes(shown), 0));
}

/* write_piece makes the IPv4 header at an offset of the frame that of a fragment. */
static __always_inline bool write_piece(struct __sk_buff *skb, __u32 at, __u32 length, __u16 word)
{
	struct cursor c = frame_at(skb, frame_offset(&at));
	struct iphdr *ip = take(&c, sizeof(*ip));

	if (!ip)
		return false;
	ip->check = replace_word(ip->check, ip->tot_len, bpf_htons(length));
	ip->check = replace_word(ip->check, ip->frag_off, bpf_htons(word));
	ip->tot_len = bpf_htons(length);
	ip->frag_off = bpf_htons(word);
	return true;
}

/* fragment_word reads the flags and offset of the packet's IPv4 header. */
static __always_inline __u16 fragment_word(struct __sk_buff *skb)
{
	struct cursor c = frame_at(skb, ETH_BYTES);
	struct iphdr *ip = take(&c, sizeof(*ip));

	return ip ? bpf_ntohs(ip->frag_off) : 0;
}

/* write_length writes the payload length of the outer header. */
static __always_inline bool write_length(struct __sk_buff *skb, __u16 length)
{
	__be16 field = bpf_htons(length);

	return !bpf_skb_store_bytes(skb, ETH_BYTES + offsetof(struct ipv6hdr, payload_len), &field,
				    sizeof(field), 0);
}

/* rest_bytes is 1 to MAX_REST bytes, in a form that shows Linux 6.1 the bounds. */
static __always_inline __u32 rest_bytes(__u32 n)
{
	n--;
	asm volatile("%0 &= %1" : "+r"(n) : "i"(MAX_REST - 1));
	return n + 1;
}

/* send_in_fragments sends the packet as two. The first has all that fits a frame; the rest waits
 * on the stack meanwhile. */
__noinline int send_in_fragments(struct __sk_buff *skb, struct scratch *scr)
{
	__u32 headers, at, first, rest;
	__u8 kept[MAX_REST];
	__u16 word;

	if (!scr)
		return TC_ACT_SHOT;
	headers = route_bytes(scr->route.n, WIRE_ENCAP) + sizeof(struct iphdr);
	first = (self.mtu - headers) & ~7U;
	rest = scr->packet.length - sizeof(struct iphdr) - first;
	at = ETH_BYTES + sizeof(struct iphdr) + first;
	if (rest < 1 || rest > MAX_REST || bpf_skb_load_bytes(skb, at, kept, rest_bytes(rest)))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	word = fragment_word(skb);
	if (bpf_skb_change_tail(skb, at, 0) ||
	    !write_piece(skb, ETH_BYTES, sizeof(struct iphdr) + first, word | IP_MORE_FRAGMENTS) ||
	    !add_front(skb, &scr->packet, &scr->route) || bpf_clone_redirect(skb, skb->ifindex, 0))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	at = ETH_BYTES + headers;
	if (bpf_skb_change_tail(skb, at + rest, 0) ||
	    bpf_skb_store_bytes(skb, at, kept, rest_bytes(rest), 0) ||
	    !write_piece(skb, at - sizeof(struct iphdr), sizeof(struct iphdr) + rest,
			 word + first / 8) ||
	    !write_length(skb, headers + rest - sizeof(struct ipv6hdr)))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	count(LB_SENT_IN_FRAGMENTS);
	return bpf_redirect(skb->ifindex, 0);
}

/* send_in_segments sends a super-packet. The kernel shortens the segments by our headers. */
__noinline int send_in_segments(struct __sk_buff *skb, struct scratch *scr)
{
	if (!scr || !add_front(skb, &scr->packet, &scr->route))
		return verdict(LB_DROP_SUPER_PACKET, TC_ACT_SHOT);
	count(LB_SENT_IN_SEGMENTS);
	return bpf_redirect(skb->ifindex, 0);
}

/* send_long sends a client's packet that one frame cannot carry. */
static __always_inline int send_long(struct __sk_buff *skb, struct scratch *scr,
				     const struct service *svc)
{
	bool joined = skb->gso_size;
	enum counter reason;

	if (!joined && (!scr->packet.divisible || scr->packet.length > self.mtu))
		return verdict(LB_DROP_SUPER_PACKET, TC_ACT_SHOT);
	scr->packet.hash = digest(&scr->packet.t);
	reason = long_route(scr, svc, joined);
	if (reason != COUNTERS)
		return verdict(reason, TC_ACT_SHOT);
	if (count_hop(frame_at(skb, ETH_BYTES), &scr->packet))
		return verdict(LB_DROP_HOP_LIMIT, TC_ACT_SHOT);
	return joined ? send_in_segments(skb, scr) : send_in_fragments(skb, scr);
}
