/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* long_agentless.h: packets that are too long for XDP, to servers at their link address or in
 * VXLAN (lb/long_packets.h has those over SRv6). */
#pragma once
#include "lb/headroom.h"
#include "lb/vxlan.h"
#include <linux/pkt_cls.h>

/* send_l2_long sends a super-packet to the link address of its server. The link makes segments of
 * it; a packet that no link joined fits XDP. */
static __always_inline int send_l2_long(struct __sk_buff *skb, const struct packet *p,
					const struct server *s)
{
	struct ethhdr eth;

	link_header(&eth, s->mac, p->family);
	if (!skb->gso_size || bpf_skb_store_bytes(skb, 0, &eth, sizeof(eth), 0))
		return verdict(LB_DROP_SUPER_PACKET, TC_ACT_SHOT);
	count(LB_BY_L2);
	count(LB_SENT_IN_SEGMENTS);
	return bpf_redirect(skb->ifindex, 0);
}

/* room_for_tunnel makes room before a packet. The kernel shortens the segments of a super-packet by
 * it; a fragment must not be known as encapsulated (room_before). */
static __always_inline bool room_for_tunnel(struct __sk_buff *skb, const struct tunnel *t)
{
	__u64 flags = BPF_F_ADJ_ROOM_ENCAP_L4_UDP | BPF_F_ADJ_ROOM_ENCAP_L2(ETH_BYTES) |
		      BPF_F_ADJ_ROOM_ENCAP_L2_ETH;

	if (skb->gso_size && is_mapped(&t->to))
		flags |= BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	else if (skb->gso_size)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L3_IPV6;
	else if (is_mapped(&t->to))
		flags = 0;
	else
		return room_before(skb, tunnel_bytes(t));
	return !bpf_skb_adjust_room(skb, tunnel_bytes(t), BPF_ADJ_ROOM_MAC, flags);
}

/* write_tunnel writes the headers before a fragment of so many bytes. */
static __always_inline bool write_tunnel(struct __sk_buff *skb, const struct packet *p,
					 const struct tunnel *t, const struct server *s,
					 __u32 length)
{
	return length + tunnel_bytes(t) <= 0xffff &&
	       write_vxlan_long(skb, p, t, s->mac, length, -1);
}

/* send_fragments_in_tunnel sends an IPv4 packet without DF as two, each in the tunnel. */
__noinline int send_fragments_in_tunnel(struct __sk_buff *skb, struct scratch *scr,
					const struct tunnel *t, const struct server *s)
{
	__u32 head, headers, at, first, rest;
	__u8 kept[MAX_REST];
	__u16 word;

	if (!scr || !t || !s)
		return TC_ACT_SHOT;
	head = head_bytes(&scr->packet);
	headers = tunnel_bytes(t) + head;
	first = (self.mtu - headers) & ~7U;
	rest = scr->packet.length - head - first;
	at = ETH_BYTES + head + first;
	if (rest < 1 || rest > MAX_REST || bpf_skb_load_bytes(skb, at, kept, rest_bytes(rest)))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	word = fragment_word(skb);
	if (bpf_skb_change_tail(skb, at, 0) ||
	    !write_piece(skb, ETH_BYTES, head + first, word | IP_MORE_FRAGMENTS) ||
	    !room_for_tunnel(skb, t) || !write_tunnel(skb, &scr->packet, t, s, head + first) ||
	    bpf_clone_redirect(skb, skb->ifindex, 0))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	at = ETH_BYTES + headers;
	if (bpf_skb_change_tail(skb, at + rest, 0) ||
	    bpf_skb_store_bytes(skb, at, kept, rest_bytes(rest), 0) ||
	    !write_piece(skb, at - head, head + rest, word + first / 8) ||
	    !write_tunnel(skb, &scr->packet, t, s, head + rest))
		return verdict(LB_DROP_TOO_BIG, TC_ACT_SHOT);
	count(LB_SENT_IN_FRAGMENTS);
	return bpf_redirect(skb->ifindex, 0);
}

/* send_vxlan_long sends a packet in the tunnel of its server. */
static __always_inline int send_vxlan_long(struct __sk_buff *skb, struct scratch *scr,
					   const struct server *s)
{
	__u32 number = scr->destination.server, length = scr->packet.length;
	const struct tunnel *t = bpf_map_lookup_elem(&tunnels, &number);

	if (!t)
		return verdict(LB_DROP_NO_NEXT_HOP, TC_ACT_SHOT);
	count(LB_BY_VXLAN);
	if (!skb->gso_size)
		return send_fragments_in_tunnel(skb, scr, t, s);
	if (!room_for_tunnel(skb, t) || !write_tunnel(skb, &scr->packet, t, s, length))
		return verdict(LB_DROP_SUPER_PACKET, TC_ACT_SHOT);
	count(LB_SENT_IN_SEGMENTS);
	return bpf_redirect(skb->ifindex, 0);
}
