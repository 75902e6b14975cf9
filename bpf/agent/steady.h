/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* steady.h: a shorter way for the most frequent packets: segments that teach nothing
 * but data, the end of a handshake, and a FIN. Any other packet takes the general way (decide.h),
 * where these would fare alike. */
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

/* read_segment reads a segment without SYN or RST; false: another packet.
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
	if (!tcp || tcp->doff * 4 < sizeof(*tcp) || ((const __u8 *)tcp)[13] & (TCP_SYN | TCP_RST))
		return false;
	headers = READ_ONCE(p->l4) - SRH_AT + tcp->doff * 4;
	p->payload = READ_ONCE(p->length) - headers;
	if ((__s32)p->payload < 0)
		return false;
	set_ports(&p->t, tcp->source, tcp->dest);
	set_word(&p->t.protocol, IPPROTO_TCP);
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->flags = ((const __u8 *)tcp)[13];
	return true;
}

/* find_segment finds the segment's entry, if that is in its primary line and of a service with
 * outer headers; and the service. */
static __always_inline const struct offering *find_segment(struct packet *p, struct conn_entry *e,
							   __u64 now)
{
	const struct offering *o;
	struct conn_line *line;
	__u64 at;

	p->hash = digest(&p->t);
	line = conn_line_at(conn_primary(p->hash));
	if (!line)
		return NULL;
	e->at = find_in_line(line, &p->t, conn_fingerprint(p->hash), now);
	if (e->at < 0)
		return NULL;
	at = e->at;
	asm volatile("%0 &= %1" : "+r"(at) : "i"(SLOTS - 1));
	e->c = &line->slot[at];
	e->embryonic = !(e->at & AT_ESTABLISHED);
	o = offered_at(e->c->offering);
	return o && o->wire == WIRE_ENCAP ? o : NULL;
}

/* is_steady is true of a segment that would be delivered by its entry alone. */
static __always_inline bool is_steady(const struct conn_entry *e, const struct packet *p, __u64 now)
{
	if (e->c->flags & CONN_DOUBTED)
		return false;
	if ((p->payload || p->flags & TCP_FIN) && (__s32)(p->seq - e->c->next_in) > 0) /* a gap */
		return false;
	return is_sure(e, p, now);
}

/* observe_segment updates the entry as observe and advance would. */
static __always_inline void observe_segment(struct conn *c, const struct packet *p, __u64 now)
{
	__u32 end = p->seq + p->payload;

	c->seen = now >> SEEN_SHIFT;
	stop_signalling(c);
	load_on_arrival(c);
	if (p->payload && (__s32)(end - c->next_in) > 0) {
		c->next_in = end;
		load_on_in(c);
	}
	if (p->flags & TCP_FIN && (__s32)(end + 1 - c->next_in) > 0) {
		c->next_in = end + 1;
		set_flag(c, CONN_CLIENT_FIN);
	}
}

/* deliver_steady delivers a segment by its entry. False: the packet is as it was, and takes the
 * general way. A function of its own, as the general way has no room for its stack. */
static __always_inline bool deliver_steady(struct xdp_md *ctx, struct packet *p)
{
	struct conn_entry e = {};
	const struct offering *o;
	struct ipv6hdr *outer;
	struct ethhdr *eth;
	struct cursor c;
	__u8 link[2 * ETH_ALEN];
	__u64 now;

	if (!read_segment(ctx, p))
		return false;
	now = now_ns();
	o = find_segment(p, &e, now);
	if (!o || !is_steady(&e, p, now))
		return false;
	c = frame_at(ctx, 0);
	eth = take(&c, sizeof(*eth));
	outer = take(&c, sizeof(*outer));
	if (!eth || !outer ||
	    ((const struct sid *)&outer->daddr)->generation_be != bpf_htons(e.c->generation))
		return false;
	if (e.embryonic && !conn_change(p->hash, e.at, ESTABLISHED))
		return false;
	__builtin_memcpy(link, eth, sizeof(link));
	if (bpf_xdp_adjust_head(ctx, sizeof(struct ipv6hdr)))
		return false;
	observe_segment(e.c, p, now);
	if (e.embryonic)
		count(AGENT_ESTABLISHED);
	return !address_to_vip(ctx, o, p->family, link);
}
