/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* rewrite_end.h: another address and port (or echo identifier) at an end of a packet, with the
 * checksums that follow (RFC 1624, RFC 3022 §4.1), and in an ICMP error about a packet. */
#pragma once
#include "edge/tuple.h"

enum edge_endpoint {
	END_SOURCE,
	END_DESTINATION,
};

/* A change of some bytes, as the checksum over them sees it. */
struct edge_change {
	__u32 addr; /* of the address */
	__u32 port; /* of the port */
};

/* changed_sum is a checksum after changes that add up to delta. */
static __always_inline __sum16 changed_sum(__sum16 check, __u64 delta)
{
	return folded((__u16)~check + delta);
}

/* replace_address writes the address into the IP header. */
static __always_inline bool replace_address(struct xdp_md *ctx, const struct packet *p,
					    enum edge_endpoint end, const struct in6_addr *to,
					    __u32 delta)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);

	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return false;
		copy_address(end == END_SOURCE ? &ip->saddr : &ip->daddr, to);
		return true;
	}
	struct iphdr *ip = take(&c, sizeof(*ip));

	if (!ip)
		return false;
	if (end == END_SOURCE)
		ip->saddr = to->s6_addr32[3];
	else
		ip->daddr = to->s6_addr32[3];
	ip->check = changed_sum(ip->check, delta);
	return true;
}

/* replace_echo writes the identifier of an echo. ICMPv6's checksum covers the addresses. */
static __always_inline bool replace_echo(struct cursor c, const struct packet *p, __be16 id,
					 const struct edge_change *d)
{
	struct icmp *icmp = take(&c, sizeof(*icmp));

	if (!icmp)
		return false;
	*(__be16 *)&icmp->rest = id;
	icmp->check = changed_sum(icmp->check, (__u64)d->port + (p->family == 6 ? d->addr : 0));
	return true;
}

/* replace_port writes the port, and the checksum that covers addresses and ports. */
static __always_inline bool replace_port(struct xdp_md *ctx, const struct packet *p,
					 enum edge_endpoint end, __be16 port,
					 const struct edge_change *d)
{
	struct cursor c = frame_at(ctx, frame_offset(&p->l4));
	__u64 delta = (__u64)d->addr + d->port;

	if (p->kind == KIND_ECHO)
		return replace_echo(c, p, port, d);
	if (p->kind == KIND_TCP) {
		struct tcphdr *tcp = take(&c, sizeof(*tcp));

		if (!tcp)
			return false;
		*(end == END_SOURCE ? &tcp->source : &tcp->dest) = port;
		tcp->check = changed_sum(tcp->check, delta);
		return true;
	}
	struct udphdr *udp = take(&c, sizeof(*udp));

	if (!udp)
		return false;
	*(end == END_SOURCE ? &udp->source : &udp->dest) = port;
	if (udp->check) /* 0: none */
		udp->check = changed_sum(udp->check, delta) ?: 0xffff;
	return true;
}

/* difference is the change of a checksum by another address. */
static __always_inline __u32 difference(const struct in6_addr *was, const struct in6_addr *is)
{
	return bpf_csum_diff((void *)was, sizeof(*was), (void *)is, sizeof(*is), 0);
}

/* replace_sum corrects a checksum inside an error, and returns the change that it is itself. */
static __always_inline __u64 replace_sum(__sum16 *check, __u64 delta)
{
	__sum16 was = *check;

	*check = changed_sum(was, delta);
	return (__u64)(__u16)~was + *check;
}

/* replace_quoted_port writes the port of an end of the quoted packet, as far as the quote goes. d has the
 * change of its address, and gets that of the port. It returns the sum of all changes, or -1. */
static __always_inline __s64 replace_quoted_port(struct cursor *c, const struct packet *p,
						 enum edge_endpoint end, __be16 port,
						 struct edge_change *d)
{
	__u32 at = end == END_SOURCE,
	      echo = p->t.protocol != IPPROTO_TCP && p->t.protocol != IPPROTO_UDP;
	__u16 *l4 = take(c, 8);
	__sum16 *check;
	__u64 sum;

	if (!l4)
		return -1;
	if (echo)
		at = 2;
	d->port = (__u32)(__u16)~l4[at] + port;
	l4[at] = port;
	sum = (__u64)d->addr + d->port;
	if (echo)
		return sum + replace_sum(&l4[1], d->port + (p->family == 6 ? (__u64)d->addr : 0));
	if (p->t.protocol == IPPROTO_UDP)
		return l4[3] ? sum + replace_sum(&l4[3], sum) : sum;
	check = take(c, 10);
	return check ? sum + replace_sum(&check[4], sum) : sum;
}

/* The headers of an error up to the ports that it quotes. */
struct error6 {
	struct ipv6hdr ip;
	struct icmp icmp;
	struct ipv6hdr quoted;
};

struct error4 {
	struct iphdr ip;
	struct icmp icmp;
	struct iphdr quoted;
};

/* replace_error6 changes an end in an error: its own address and the other end of its quote; neither
 * with options. */
static __always_inline bool replace_error6(struct xdp_md *ctx, const struct packet *p,
					   enum edge_endpoint end, const struct in6_addr *to,
					   __be16 port)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct error6 *e = take(&c, sizeof(*e));
	struct in6_addr was, before;
	struct edge_change d;
	__u64 outer;
	__s64 sum;

	if (!e || p->options || e->quoted.nexthdr != p->t.protocol)
		return false;
	copy_address(&was, end == END_SOURCE ? &e->ip.saddr : &e->ip.daddr);
	copy_address(&before, end == END_SOURCE ? &e->quoted.daddr : &e->quoted.saddr);
	outer = difference(&was, to); /* of the pseudo-header */
	d.addr = difference(&before, to);
	sum = replace_quoted_port(&c, p, end, port, &d);
	if (sum < 0)
		return false;
	copy_address(end == END_SOURCE ? &e->ip.saddr : &e->ip.daddr, to);
	copy_address(end == END_SOURCE ? &e->quoted.daddr : &e->quoted.saddr, to);
	e->icmp.check = changed_sum(e->icmp.check, sum + outer);
	return true;
}

static __always_inline bool replace_error4(struct xdp_md *ctx, const struct packet *p,
					   enum edge_endpoint end, const struct in6_addr *to,
					   __be16 port)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct error4 *e = take(&c, sizeof(*e));
	struct in6_addr was, before;
	struct edge_change d;
	__s64 sum;

	if (!e || p->options || e->quoted.ihl != 5)
		return false;
	copy_mapped(&was, end == END_SOURCE ? e->ip.saddr : e->ip.daddr);
	copy_mapped(&before, end == END_SOURCE ? e->quoted.daddr : e->quoted.saddr);
	d.addr = difference(&before, to);
	sum = replace_quoted_port(&c, p, end, port, &d);
	if (sum < 0)
		return false;
	e->ip.check = changed_sum(e->ip.check, difference(&was, to));
	sum += replace_sum(&e->quoted.check, d.addr);
	if (end == END_SOURCE) {
		e->ip.saddr = to->s6_addr32[3];
		e->quoted.daddr = to->s6_addr32[3];
	} else {
		e->ip.daddr = to->s6_addr32[3];
		e->quoted.saddr = to->s6_addr32[3];
	}
	e->icmp.check = changed_sum(e->icmp.check, sum);
	return true;
}

/* replace_error gives an end of an ICMP error's flow another address and port (RFC 5508 §4): the
 * error's own address, and that of the packet that it quotes. */
__noinline bool replace_error(struct xdp_md *ctx, const struct packet *p, __u32 end,
			      const struct in6_addr *addr, __u32 port)
{
	struct in6_addr to;

	if (!p || !addr)
		return false;
	copy_address(&to, addr);
	return p->family == 6 ? replace_error6(ctx, p, end, &to, port)
			      : replace_error4(ctx, p, end, &to, port);
}

/* replace_end gives an end of the packet, which is first in the frame, another address and port. */
static __always_inline bool replace_end(struct xdp_md *ctx, struct packet *p,
					enum edge_endpoint end, const struct in6_addr *addr,
					__be16 port)
{
	struct in6_addr *was = end == END_SOURCE ? &p->t.client : &p->t.vip;
	__be16 *was_port = end == END_SOURCE ? &p->t.client_port_be : &p->t.vip_port_be;
	struct in6_addr old = *was, new = *addr; /* on the stack, for Linux 6.1 */
	struct edge_change d = {
		.addr = bpf_csum_diff((void *)&old, sizeof(old), (void *)&new, sizeof(new), 0),
		.port = (__u32)(__u16) ~*was_port + port,
	};

	if (p->kind == KIND_ERROR) {
		if (!replace_error(ctx, p, end, &new, port))
			return false;
	} else if (!replace_address(ctx, p, end, &new, d.addr) ||
		   !replace_port(ctx, p, end, port, &d)) {
		return false;
	}
	copy_address(was, &new);
	*was_port = port;
	if (p->t.protocol == IPPROTO_ICMP || p->t.protocol == IPPROTO_ICMPV6)
		set_ports(&p->t, port, port); /* one identifier */
	return true;
}
