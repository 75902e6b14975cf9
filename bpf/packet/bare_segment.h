/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* bare_segment.h: a TCP segment without payload in place of the packet at hand: a RST (RFC 9293 §3.10.7),
 * a server's to the client, or the client's to a server that was not first; or another segment, with
 * the window and options of that packet. */
#pragma once
#include "core/siphash.h"
#include "packet/ip_header.h"

struct segment {
	struct in6_addr from; /* IPv4 mapped */
	struct in6_addr to;
	__be16 from_port_be;
	__be16 to_port_be;
	__u32 seq;
	__u32 ack;
	__u32 flags; /* TCP_RST, and TCP_ACK if ack counts */
	__u32 label;
};

/* The window and options of another segment. */
struct segment_rest {
	__u8 options[TCP_OPTIONS]; /* zeros behind */
	__u32 length;		   /* of the options */
	__be16 window_be;
};

/* segment_tcp writes the header, whose options are in place, and returns the sum of both. */
static __always_inline __s64 segment_tcp(struct tcphdr *tcp, const struct segment *g,
					 const struct segment_rest *rest, __s64 sum)
{
	__u32 length = sizeof(*tcp) + (rest ? rest->length : 0);
	__be32 pseudo[2] = { bpf_htonl(length), bpf_htonl(IPPROTO_TCP) };

	__builtin_memset(tcp, 0, sizeof(*tcp));
	tcp->source = g->from_port_be;
	tcp->dest = g->to_port_be;
	tcp->seq = bpf_htonl(g->seq);
	tcp->ack_seq = bpf_htonl(g->ack);
	tcp->doff = length / 4;
	tcp->rst = !!(g->flags & TCP_RST);
	tcp->ack = !!(g->flags & TCP_ACK);
	sum = bpf_csum_diff(NULL, 0, pseudo, sizeof(pseudo), sum);
	if (rest) {
		tcp->window = rest->window_be;
		sum = bpf_csum_diff(NULL, 0, (void *)rest->options, sizeof(rest->options), sum);
	}
	return bpf_csum_diff(NULL, 0, (void *)tcp, sizeof(*tcp), sum);
}

static __always_inline enum rewritten segment6(struct xdp_md *ctx, const struct segment *g,
					       const struct segment_rest *rest)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip) + sizeof(struct tcphdr));
	struct tcphdr *tcp = (void *)(ip + 1);

	if (!ip)
		return FRAME_TRUNCATED;
	outer_header(ip, &g->from, &g->to, 0, g->label, sizeof(*tcp) + (rest ? rest->length : 0),
		     IPPROTO_TCP);
	tcp->check = folded(
		segment_tcp(tcp, g, rest,
			    bpf_csum_diff(NULL, 0, (void *)&ip->saddr, 2 * sizeof(ip->saddr), 0)));
	return REWRITTEN;
}

static __always_inline enum rewritten segment4(struct xdp_md *ctx, const struct segment *g,
					       const struct segment_rest *rest)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct iphdr *ip = take(&c, sizeof(*ip) + sizeof(struct tcphdr));
	struct tcphdr *tcp = (void *)(ip + 1);

	if (!ip)
		return FRAME_TRUNCATED;
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(sizeof(*ip) + sizeof(*tcp) + (rest ? rest->length : 0)),
		.ttl = OUTER_HOP_LIMIT,
		.protocol = IPPROTO_TCP,
		.saddr = g->from.s6_addr32[3],
		.daddr = g->to.s6_addr32[3],
	};
	ip->check = folded(bpf_csum_diff(NULL, 0, (void *)ip, sizeof(*ip), 0));
	tcp->check = folded(
		segment_tcp(tcp, g, rest,
			    bpf_csum_diff(NULL, 0, (void *)&ip->saddr, 2 * sizeof(ip->saddr), 0)));
	return REWRITTEN;
}

/* bounded_options is a length of options that is not 0, or 0 if it is too long. Linux 6.1 does not see
 * from a comparison that a length is not 0. */
static __always_inline __u32 bounded_options(__u32 length)
{
	__u32 last = length - 1;

	asm volatile("%0 &= 63" : "+r"(last));
	if (last >= TCP_OPTIONS)
		return 0;
	return last + 1;
}

/* write_segment replaces the packet by a segment, with the rest of another segment or none (NULL); the Ethernet header
 * stays. p gets the segment's facts but its tuple. */
static __always_inline enum rewritten write_segment(struct xdp_md *ctx, struct packet *p,
						    const struct segment *g,
						    const struct segment_rest *rest)
{
	__u32 bytes = ip_bytes(p) + sizeof(struct tcphdr), all = bytes + (rest ? rest->length : 0);

	if (bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + all - bpf_xdp_get_buff_len(ctx))))
		return NO_HEADROOM;
	if (rest && rest->length) {
		__u32 length = bounded_options(rest->length);

		if (!length ||
		    bpf_xdp_store_bytes(ctx, ETH_BYTES + bytes, (void *)rest->options, length))
			return FRAME_TRUNCATED;
	}
	p->l4 = ETH_BYTES + ip_bytes(p);
	p->options = 0;
	p->length = all;
	p->payload = 0;
	p->flags = g->flags;
	p->hop_limit = OUTER_HOP_LIMIT;
	p->class = 0;
	return p->family == 6 ? segment6(ctx, g, rest) : segment4(ctx, g, rest);
}

/* read_rest reads the window and options of the segment at hand. */
static __always_inline bool read_rest(struct xdp_md *ctx, const struct packet *p,
				      struct segment_rest *rest)
{
	__u32 at = frame_offset(&p->l4), length;
	struct cursor c = frame_at(ctx, at);
	const struct tcphdr *tcp = take(&c, sizeof(*tcp));

	__builtin_memset(rest, 0, sizeof(*rest));
	if (!tcp)
		return false;
	length = tcp->doff * 4 - sizeof(*tcp);
	rest->window_be = tcp->window;
	rest->length = length;
	if (!length)
		return true;
	length = bounded_options(length);
	return length && !bpf_xdp_load_bytes(ctx, at + sizeof(*tcp), rest->options, length);
}

/* reset_port turns a segment into the RST that refuses it (RFC 9293 §3.10.7.1). */
static __always_inline int reset_port(struct xdp_md *ctx, struct packet *p)
{
	__u32 syn = !!(p->flags & TCP_SYN), fin = !!(p->flags & TCP_FIN);
	struct segment rst = {
		.from = p->t.vip,
		.to = p->t.client,
		.from_port_be = p->t.vip_port_be,
		.to_port_be = p->t.client_port_be,
		.flags = TCP_RST,
		.label = flow_label(&p->t),
	};

	if (p->flags & TCP_ACK) {
		rst.seq = p->ack;
	} else {
		rst.flags |= TCP_ACK;
		rst.ack = p->seq + p->payload + syn + fin;
	}
	return write_segment(ctx, p, &rst, NULL);
}
