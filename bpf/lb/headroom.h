/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* headroom.h: room before a packet of the stack, and the fragments of an IPv4 packet. */
#pragma once
#include "packet/rewrite.h"

#define MAX_REST 128 /* bytes of a second fragment: those of our longest header (96), and up to 7 */

/* room_before makes room before a packet. A packet that the kernel knows as encapsulated can be
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

/* rest_bytes is 1 to MAX_REST bytes, in a form that shows Linux 6.1 the bounds. */
static __always_inline __u32 rest_bytes(__u32 n)
{
	n--;
	asm volatile("%0 &= %1" : "+r"(n) : "i"(MAX_REST - 1));
	return n + 1;
}
