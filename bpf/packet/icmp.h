/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* icmp.h: ICMP to clients: packet too big (RFC 4443 §3.2), fragmentation needed (RFC 1191 §4),
 * port unreachable, and time exceeded. */
#pragma once
#include "core/siphash.h"
#include "packet/ip_header.h"
#include "packet/range_sum.h"

#define MIN_MTU6 1280 /* RFC 8200 §5 */
#define MIN_MTU4 576

/* is_one_node: the address may be answered (RFC 4443 §2.4(e), RFC 1122 §3.2.2): it is not
 * unspecified, a loopback or a multicast address. */
static __always_inline bool is_one_node(const struct in6_addr *a)
{
	const __be64 *half = (const void *)a;
	__u8 first = a->s6_addr[12];

	if (is_mapped(a))
		return first && first != 127 && first < 224;
	return a->s6_addr[0] != 0xff && (half[0] || half[1] & ~bpf_cpu_to_be64(1));
}

/* bpf_csum_diff took 512 bytes at a time before Linux 6.13. */
static __always_inline __s64 sum_of(void *data, __u32 bytes, __s64 sum)
{
	for (__u32 at = 0; at < bytes; at += 512)
		sum = bpf_csum_diff(NULL, 0, data + at, bytes - at < 512 ? bytes - at : 512, sum);
	return sum;
}

/* pseudo_sum is the sum of the rest of a pseudo-header (RFC 8200 §8.1). On the stack it would make
 * the deepest chain of calls too deep for Linux 6.1. */
static __always_inline __u32 pseudo_sum(__u32 length, __u32 protocol)
{
	__u64 sum = (__u64)bpf_htonl(length) + bpf_htonl(protocol);

	return sum + (sum >> 32);
}

/* quote6 writes an ICMPv6 error before the first `bytes` (a constant) of the packet that follows
 * it. Its source is the VIP, an address that the client knows. */
static __always_inline enum rewritten quote6(struct xdp_md *ctx, const struct packet *p,
					     __u32 bytes, __u8 type, __u8 code, __u32 rest)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip) + sizeof(struct icmp) + bytes);
	struct icmp *icmp = (void *)(ip + 1);
	__s64 sum;

	if (!ip)
		return FRAME_TRUNCATED;
	outer_header(ip, &p->t.vip, &p->t.client, 0, flow_label(&p->t), sizeof(*icmp) + bytes,
		     IPPROTO_ICMPV6);
	*icmp = (struct icmp){ .type = type, .code = code, .rest = bpf_htonl(rest) };
	sum = bpf_csum_diff(NULL, 0, (void *)&ip->saddr, 2 * sizeof(ip->saddr),
			    pseudo_sum(sizeof(*icmp) + bytes, IPPROTO_ICMPV6));
	icmp->check = folded(sum_of(icmp, sizeof(*icmp) + bytes, sum));
	return REWRITTEN;
}

/* header4 fills the IPv4 header of an ICMP error that quotes so many bytes. */
static __always_inline void header4(struct iphdr *ip, const struct packet *p, __u32 bytes)
{
	*ip = (struct iphdr){
		.version = 4,
		.ihl = 5,
		.tot_len = bpf_htons(sizeof(*ip) + sizeof(struct icmp) + bytes),
		.ttl = OUTER_HOP_LIMIT,
		.protocol = IPPROTO_ICMP,
		.saddr = p->t.vip.s6_addr32[3],
		.daddr = p->t.client.s6_addr32[3],
	};
	ip->check = folded(bpf_csum_diff(NULL, 0, (void *)ip, sizeof(*ip), 0));
}

static __always_inline enum rewritten quote4(struct xdp_md *ctx, const struct packet *p,
					     __u32 bytes, __u8 type, __u8 code, __u32 rest)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct iphdr *ip = take(&c, sizeof(*ip) + sizeof(struct icmp) + bytes);
	struct icmp *icmp = (void *)(ip + 1);

	if (!ip)
		return FRAME_TRUNCATED;
	header4(ip, p, bytes);
	*icmp = (struct icmp){ .type = type, .code = code, .rest = bpf_htonl(rest) };
	icmp->check = folded(sum_of(icmp, sizeof(*icmp) + bytes, 0));
	return REWRITTEN;
}

/* A quote has one of few lengths, which the verifier must know: the most that a minimal link
 * carries, or enough for the ports and sequence number. */
#define QUOTE6_LONG (MIN_MTU6 - 48)
#define QUOTE4_LONG (MIN_MTU4 - 28)
#define QUOTE_SHORT 64

/* write_too_big turns the frame, which starts with p's IP header, into the report that it is
 * too big for mtu. The frame has no Ethernet header until link_to writes it. It is a separate
 * function for the verifier. */
__noinline int write_too_big(struct xdp_md *ctx, const struct packet *p, __u32 mtu)
{
	__u32 size = ctx->data_end - ctx->data, quote;

	if (!p)
		return FRAME_TRUNCATED;
	quote = p->family == 6 ? QUOTE6_LONG : QUOTE4_LONG;
	if (size < ETH_BYTES + quote)
		quote = QUOTE_SHORT;
	if (size < ETH_BYTES + quote)
		return FRAME_TRUNCATED;
	if (bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + quote - bpf_xdp_get_buff_len(ctx))) ||
	    bpf_xdp_adjust_head(ctx, p->family == 6 ? -48 : -28)) /* the headers before it */
		return NO_HEADROOM;
	if (mtu < (p->family == 6 ? MIN_MTU6 : MIN_MTU4))
		mtu = p->family == 6 ? MIN_MTU6 : MIN_MTU4;
	if (mtu > 0xffff) /* IPv4 has 16 bits for it, and no packet is longer */
		mtu = 0xffff;
	if (p->family == 6)
		return quote == QUOTE_SHORT ? quote6(ctx, p, QUOTE_SHORT, ICMP6_TOO_BIG, 0, mtu)
					    : quote6(ctx, p, QUOTE6_LONG, ICMP6_TOO_BIG, 0, mtu);
	return quote == QUOTE_SHORT
		       ? quote4(ctx, p, QUOTE_SHORT, ICMP4_UNREACHABLE, ICMP4_FRAG_NEEDED, mtu)
		       : quote4(ctx, p, QUOTE4_LONG, ICMP4_UNREACHABLE, ICMP4_FRAG_NEEDED, mtu);
}

/* Enough of a transport header for a sender to find its socket. */
#define QUOTE_PORTS 8

/* error_header writes the headers of an ICMP error before a quote of so many bytes, without the
 * checksum, and returns the sum so far; or -1. */
static __always_inline __s64 error_header(struct xdp_md *ctx, const struct packet *p, __u32 bytes,
					  const struct icmp *error)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct icmp *icmp;

	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip) + sizeof(*icmp));

		if (!ip)
			return -1;
		outer_header(ip, &p->t.vip, &p->t.client, 0, flow_label(&p->t),
			     sizeof(*icmp) + bytes, IPPROTO_ICMPV6);
		*(struct icmp *)(ip + 1) = *error;
		return bpf_csum_diff(NULL, 0, (void *)&ip->saddr, 2 * sizeof(ip->saddr),
				     pseudo_sum(sizeof(*icmp) + bytes, IPPROTO_ICMPV6));
	}
	struct iphdr *ip = take(&c, sizeof(*ip) + sizeof(*icmp));

	if (!ip)
		return -1;
	header4(ip, p, bytes);
	*(struct icmp *)(ip + 1) = *error;
	return 0;
}

/* write_error turns the packet, which is first in the frame, into an ICMP error that quotes so many
 * bytes of it. The frame has no Ethernet header until link_to writes it. A function of its own for
 * the verifier. */
__noinline int write_error(struct xdp_md *ctx, struct packet *p, __u32 bytes, __u32 type,
			   __u32 code)
{
	const struct icmp error = { .type = type, .code = code };
	struct range r = { .ctx = ctx };
	__u32 length = bpf_xdp_get_buff_len(ctx), header;
	__sum16 check;

	if (!p || length < ETH_BYTES + bytes)
		return FRAME_TRUNCATED;
	header = ip_bytes(p);
	if (bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + bytes - length)) ||
	    bpf_xdp_adjust_head(ctx, p->family == 6 ? -48 : -28))
		return NO_HEADROOM;
	r.sum = error_header(ctx, p, bytes, &error);
	r.at = ETH_BYTES + header;
	r.end = r.at + sizeof(error) + bytes;
	if (r.sum < 0 || !sum_range(&r))
		return FRAME_TRUNCATED;
	check = folded(r.sum);
	return bpf_xdp_store_bytes(ctx, ETH_BYTES + header + offsetof(struct icmp, check), &check,
				   sizeof(check))
		       ? FRAME_TRUNCATED
		       : REWRITTEN;
}

/* write_port_unreachable turns a datagram into the report that its port is not served. It quotes
 * the headers alone, and so is at most twice as long as the datagram. */
static __always_inline int write_port_unreachable(struct xdp_md *ctx, struct packet *p)
{
	bool six = p->family == 6;

	return write_error(ctx, p, head_bytes(p) + QUOTE_PORTS,
			   six ? ICMP6_UNREACHABLE : ICMP4_UNREACHABLE,
			   six ? ICMP6_PORT : ICMP4_PORT);
}

/* write_time_exceeded turns a packet into the report that its hop limit ended (RFC 4443 §3.3, RFC 792), with
 * as much of the packet as a minimal link carries. */
static __always_inline int write_time_exceeded(struct xdp_md *ctx, struct packet *p)
{
	__u32 most = p->family == 6 ? QUOTE6_LONG : QUOTE4_LONG;

	return write_error(ctx, p, p->length < most ? p->length : most,
			   p->family == 6 ? ICMP6_TIME_EXCEEDED : ICMP4_TIME_EXCEEDED, 0);
}
