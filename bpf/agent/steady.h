/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* steady.h: a shorter way for the most frequent packets: segments of an established flow of which
 * nothing is to be learnt but data. Any other packet takes the general way (decide.h), where these
 * would fare alike. */
#pragma once
#include "agent/act.h"
#include "agent/stickiness.h"

#define ECN 3

/* is_steered: the packet is for [here::as]. */
static __always_inline bool is_steered(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *outer = take(&c, sizeof(*outer));
	const struct sid *sid;

	if (!outer)
		return false;
	sid = (const struct sid *)&outer->daddr;
	return sid->function_be == bpf_htons(FN_ACK_STICKINESS);
}

/* read_addresses reads the IP header at the cursor, of a TCP packet with the congestion marks of
 * the outer header: flow, family, length, and where the TCP header is. */
static __always_inline bool read_addresses(struct cursor *c, const struct ipv6hdr *outer,
					   struct packet *p)
{
	__u32 room = length_of(outer->payload_len);
	__u8 marks = ((const __u8 *)outer)[1] >> 4;

	if (c->pos + room > c->end)
		return false;
	if (outer->nexthdr == IPPROTO_IPV6) {
		struct ipv6hdr *ip = take(c, sizeof(*ip));

		if (!ip || ip->version != 6 || ip->nexthdr != IPPROTO_TCP ||
		    (((const __u8 *)ip)[1] >> 4 ^ marks) & ECN)
			return false;
		p->family = 6;
		p->l4 = SRH_AT + sizeof(*ip);
		p->length = sizeof(*ip) + length_of(ip->payload_len);
		copy_address(&p->t.client, &ip->saddr);
		copy_address(&p->t.vip, &ip->daddr);
		return p->length <= room;
	}
	if (outer->nexthdr == IPPROTO_IPIP) {
		struct iphdr *ip = take(c, sizeof(*ip));

		if (!ip || *(const __u8 *)ip != 0x45 || ip->protocol != IPPROTO_TCP ||
		    ip->frag_off & bpf_htons(IP_FRAGMENT) || (ip->tos ^ marks) & ECN)
			return false;
		p->family = 4;
		p->l4 = SRH_AT + sizeof(*ip);
		p->length = length_of(ip->tot_len);
		p->t.client = mapped(ip->saddr);
		p->t.vip = mapped(ip->daddr);
		return p->length <= room;
	}
	return false;
}

/* read_segment reads a segment that neither begins nor ends a connection; false: another packet.
 * It reads again the facts that read_addresses wrote, so that the verifier looks at the rest once
 * for both families. */
static __always_inline bool read_segment(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *outer = take(&c, sizeof(*outer));
	struct tcphdr *tcp;
	__u32 headers;

	if (!outer || !is_inside(upper_half(&outer->saddr)) || !read_addresses(&c, outer, p))
		return false;
	c = frame_at(ctx, frame_offset(&p->l4));
	tcp = take(&c, sizeof(*tcp));
	if (!tcp || tcp->doff * 4 < sizeof(*tcp) ||
	    ((const __u8 *)tcp)[13] & (TCP_SYN | TCP_FIN | TCP_RST))
		return false;
	headers = READ_ONCE(p->l4) - SRH_AT + tcp->doff * 4;
	p->payload = READ_ONCE(p->length) - headers;
	if ((__s32)p->payload < 0)
		return false;
	set_ports(&p->t, tcp->source, tcp->dest);
	set_word(&p->t.protocol, IPPROTO_TCP);
	p->seq = bpf_ntohl(tcp->seq);
	return true;
}

/* find_steady returns the segment's entry if it would be delivered by it alone, or NULL. */
static __always_inline struct conn *find_steady(const struct packet *p)
{
	struct conn_entry e = {};
	struct conn_line *line;
	__u64 hash = digest(&p->t), now = now_ns(), at;

	line = conn_line_at(conn_primary(hash));
	if (!line)
		return NULL;
	e.at = find_in_line(line, &p->t, conn_fingerprint(hash), now);
	if (e.at < AT_ESTABLISHED)
		return NULL;
	at = e.at;
	asm volatile("%0 &= %1" : "+r"(at) : "i"(SLOTS - 1));
	e.c = &line->slot[at].c;
	if (e.c->state != CONN_DIRECT || e.c->flags & (CONN_PENDING | CONN_DOUBTED) ||
	    !is_sure(&e, now))
		return NULL;
	if (p->payload && (__s32)(p->seq - e.c->next_in) > 0) /* a gap */
		return NULL;
	return e.c;
}

/* deliver_steady delivers a segment of an established flow. False: the packet is as it was, and
 * takes the general way. A function of its own, as the general way has no room for its stack. */
__noinline bool deliver_steady(struct xdp_md *ctx, struct packet *p)
{
	const struct offering *o;
	struct ipv6hdr *outer;
	struct cursor c;
	struct conn *conn;
	struct ethhdr *eth;
	__u8 from[ETH_ALEN];

	if (!p || !read_segment(ctx, p))
		return false;
	conn = find_steady(p);
	if (!conn)
		return false;
	o = offered_at(conn->offering);
	c = frame_at(ctx, 0);
	eth = take(&c, sizeof(*eth));
	outer = take(&c, sizeof(*outer));
	if (!o || o->wire != WIRE_ENCAP || !eth || !outer ||
	    ((const struct sid *)&outer->daddr)->generation_be != bpf_htons(conn->generation))
		return false;
	__builtin_memcpy(from, eth->h_source, ETH_ALEN);
	if (bpf_xdp_adjust_head(ctx, sizeof(struct ipv6hdr)))
		return false;
	conn->seen_ns = now_ns();
	if (p->payload && (__s32)(p->seq + p->payload - conn->next_in) > 0) {
		conn->next_in = p->seq + p->payload;
		load_on_in(conn);
	}
	return !address_to_vip(ctx, o, p->family, from);
}
