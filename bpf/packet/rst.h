/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* rst.h: a RST in place of the packet at hand (RFC 9293 §3.10.7): a server's to the client, or
 * the client's to a server that was not first. */
#pragma once
#include "core/siphash.h"
#include "packet/header.h"

struct rst {
	struct in6_addr from; /* IPv4 mapped */
	struct in6_addr to;
	__be16 from_port_be;
	__be16 to_port_be;
	__u32 seq;
	__u32 ack;
	__u32 flags; /* TCP_RST, and TCP_ACK if ack counts */
	__u32 label;
};

static __always_inline __s64 rst_tcp(struct tcphdr *tcp, const struct rst *r, __s64 sum)
{
	__be32 pseudo[2] = { bpf_htonl(sizeof(*tcp)), bpf_htonl(IPPROTO_TCP) };

	__builtin_memset(tcp, 0, sizeof(*tcp));
	tcp->source = r->from_port_be;
	tcp->dest = r->to_port_be;
	tcp->seq = bpf_htonl(r->seq);
	tcp->ack_seq = bpf_htonl(r->ack);
	tcp->doff = sizeof(*tcp) / 4;
	tcp->rst = 1;
	tcp->ack = !!(r->flags & TCP_ACK);
	sum = bpf_csum_diff(NULL, 0, pseudo, sizeof(pseudo), sum);
	return bpf_csum_diff(NULL, 0, (void *)tcp, sizeof(*tcp), sum);
}

static __always_inline enum rewritten rst6(struct xdp_md *ctx, const struct rst *r)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip) + sizeof(struct tcphdr));
	struct tcphdr *tcp = (void *)(ip + 1);

	if (!ip)
		return FRAME_TRUNCATED;
	outer_header(ip, &r->from, &r->to, 0, r->label, sizeof(*tcp), IPPROTO_TCP);
	tcp->check = folded(rst_tcp(
		tcp, r, bpf_csum_diff(NULL, 0, (void *)&ip->saddr, 2 * sizeof(ip->saddr), 0)));
	return REWRITTEN;
}

static __always_inline enum rewritten rst4(struct xdp_md *ctx, const struct rst *r)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct iphdr *ip = take(&c, sizeof(*ip) + sizeof(struct tcphdr));
	struct tcphdr *tcp = (void *)(ip + 1);

	if (!ip)
		return FRAME_TRUNCATED;
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(sizeof(*ip) + sizeof(*tcp)),
		.ttl = OUTER_HOP_LIMIT,
		.protocol = IPPROTO_TCP,
		.saddr = r->from.s6_addr32[3],
		.daddr = r->to.s6_addr32[3],
	};
	ip->check = folded(bpf_csum_diff(NULL, 0, (void *)ip, sizeof(*ip), 0));
	tcp->check = folded(rst_tcp(
		tcp, r, bpf_csum_diff(NULL, 0, (void *)&ip->saddr, 2 * sizeof(ip->saddr), 0)));
	return REWRITTEN;
}

/* write_rst replaces the packet by the RST; the Ethernet header stays. p gets the RST's facts. */
static __always_inline enum rewritten write_rst(struct xdp_md *ctx, struct packet *p,
						const struct rst *r)
{
	__u32 bytes = ip_bytes(p) + sizeof(struct tcphdr);

	if (bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + bytes - bpf_xdp_get_buff_len(ctx))))
		return NO_HEADROOM;
	p->length = bytes;
	p->payload = 0;
	p->flags = r->flags;
	p->hop_limit = OUTER_HOP_LIMIT;
	p->class = 0;
	return p->family == 6 ? rst6(ctx, r) : rst4(ctx, r);
}

/* reset_port turns a segment into the RST that refuses it (RFC 9293 §3.10.7.1). */
static __always_inline int reset_port(struct xdp_md *ctx, struct packet *p)
{
	__u32 syn = !!(p->flags & TCP_SYN), fin = !!(p->flags & TCP_FIN);
	struct rst rst = {
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
	return write_rst(ctx, p, &rst);
}
