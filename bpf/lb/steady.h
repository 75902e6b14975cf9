/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* steady.h: a shorter way for the most frequent packets: those of known flows that neither begin
 * nor end a connection.
 *
 *   plain_at -> flow_find_inline -> settle -> write_steady
 *            -> hashed ----------------------^   of a service without flows
 *
 * Any other packet takes the general way (dispatch.h) untouched, where these would fare alike. The
 * service's record is not read: its slot tells whether packets of its flows need an outer header
 * alone (enum plain), and the flow's digest covers address and port of the service. Without flows
 * the record names the table. */
#pragma once
#include "lb/dispatch.h"
#include "packet/parse_quick.h"

#define UNDECIDED (-1)

/* read_quick reads the packet of a frame for this node; false: another packet. */
static __always_inline bool read_quick(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	const struct ipv6hdr *ip = c.pos;

	if (!eth || !is_to_us(eth))
		return false;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6) &&
	    ((void *)(ip + 1) > c.end || is_own(&ip->daddr)))
		return false;
	return read_quick_ip(c, p, eth->h_proto);
}

/* is_steady: the packet is whole, goes on, and neither begins nor ends a connection. */
static __always_inline bool is_steady(const struct packet *p)
{
	return p->reading == READ && p->hop_limit > 1 &&
	       (p->kind == KIND_TCP || p->kind == KIND_UDP) &&
	       !(p->flags & (TCP_SYN | TCP_FIN | TCP_RST));
}

/* is_settled: a packet that is steady leaves a flow with this word as it is. */
static __always_inline bool is_settled(__u64 word)
{
	return (word & (WORD_ESTABLISHED | WORD_BRIEF | CLOSED_BITS)) == WORD_ESTABLISHED;
}

/* settle returns the word of a flow after a packet that establishes it, or 0 for the general way. */
static __always_inline __u64 settle(const struct packet *p, __u64 word, enum plain plain)
{
	if (word)
		word = plain == PLAIN_CLIENT ? observe_client(p, word) : flow_advance(p, word);
	return is_settled(word & ~WORD_BRIEF) ? word : 0;
}

/* asked_of is the second half of the SID to the server of a flow. */
static __always_inline __be64 asked_of(__u64 word, enum plain plain)
{
	if (plain == PLAIN_CLIENT)
		return bpf_htons(FN_DELIVER);
	return bpf_htons(FN_ACK_STICKINESS) | (__be64)bpf_htons(generation_in_word(word)) << 16;
}

/* hashed returns the server of a packet of a service without flows, or NULL for the general way. */
static __always_inline const struct server *hashed(const struct packet *p, __u32 record)
{
	const struct service *svc = bpf_map_lookup_elem(&services, &record);
	struct service_key key = { .vip = p->t.vip };
	__u64 bucket;

	set_word(&key.port_be, p->t.vip_port_be | (__u32)p->t.protocol << 16);
	if (!svc || !same_service(&svc->key, &key))
		return NULL;
	bucket = bucket_at(svc, p->hash);
	return choices_of(bucket) ? server_at(named_member(bucket, 0)) : NULL;
}

static __always_inline bool is_srv6(const struct server *s)
{
	return s->ready == DELIVERY_AGENT || s->ready == DELIVERY_SEG6;
}

/* asked_of_kernel is the second half of the SID that a server's kernel ends. */
static __always_inline __be64 asked_of_kernel(const struct packet *p)
{
	count(LB_BY_SEG6);
	return bpf_htons(FN_DELIVER) | (__be64)bpf_htons(argument_of(p)) << 16;
}

/* write_steady sends a packet to a server. */
static __always_inline int write_steady(struct xdp_md *ctx, const struct packet *p,
					const struct server *s, __be64 asked, __u32 reason)
{
	__u64 own = own_link(), to = READ_ONCE(*(const __u64 *)s->mac), *outer;
	__u32 label;
	struct cursor c;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct ipv6hdr)))
		return rewrite_failed(NO_HEADROOM);
	c = frame_at(ctx, 0);
	outer = take(&c, ETH_BYTES + sizeof(struct ipv6hdr));
	if (!outer)
		return rewrite_failed(FRAME_TRUNCATED);
	label = flow_label(&p->t);
	outer[0] = (to & LINK_ADDRESS) | own << 48;
	outer = (void *)outer + ETH_ALEN;
	outer[0] = (own & LINK_ADDRESS) | (__u64)bpf_htons(ETH_P_IPV6) << 48;
	outer[1] = bpf_htonl(6U << 28 | (__u32)p->class << 20 | label) |
		   (__u64)bpf_htons(p->length) << 32 | (__u64)protocol_inside(p) << 48 |
		   (__u64)OUTER_HOP_LIMIT << 56;
	outer[2] = self.locator_be;
	outer[3] = bpf_cpu_to_be64(label);
	outer[4] = s->locator_be;
	outer[5] = asked;
	return transmit(reason);
}

/* send_steady sends the packet of a known flow, or of a service without flows, if it is plain. UNDECIDED: the packet is as it
 * was, and takes the general way. */
static __always_inline int send_steady(struct xdp_md *ctx, struct packet *p)
{
	__u32 slot, plain, reason = LB_STEER, dated = 0;
	const struct server *s;
	__be64 asked;
	__u64 word;

	if (!is_steady(p))
		return UNDECIDED;
	slot = plain_at(&p->t);
	plain = slot >> RECORD_NUMBER_BITS;
	if (!plain || p->length + sizeof(struct ipv6hdr) > own_link() >> 48)
		return UNDECIDED;
	if (plain == PLAIN_HASH) {
		s = hashed(p, slot & ((1 << RECORD_NUMBER_BITS) - 1));
		asked = bpf_htons(FN_DELIVER);
		reason = LB_DELIVER;
	} else {
		word = flow_find_inline(p->hash, true, &dated);
		if (!is_settled(word)) {
			word = settle(p, word, plain);
			if (!word)
				return UNDECIDED;
		} else if (dated && word & WORD_AGES && is_learned(word)) {
			sample_of(word);
		}
		if (plain == PLAIN_CLIENT && !(word & WORD_KEPT))
			return UNDECIDED; /* an agent's signal made it: it may take a seat */
		s = server_at(server_in_word(word));
		asked = asked_of(word, plain);
	}
	if (!s || !is_srv6(s) || lower_hop(frame_at(ctx, ETH_BYTES), p))
		return UNDECIDED;
	if (s->ready == DELIVERY_SEG6)
		asked = asked_of_kernel(p);
	return write_steady(ctx, p, s, asked, reason);
}
