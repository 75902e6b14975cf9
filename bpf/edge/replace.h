/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* replace.h: another address and port (or echo identifier) at one end of a packet, with the
 * checksums that follow (RFC 1624, RFC 3022 §4.1). */
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

/* replace_end gives one end of the packet, which is first in the frame, another address and port. */
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

	if (!replace_address(ctx, p, end, &new, d.addr) || !replace_port(ctx, p, end, port, &d))
		return false;
	copy_address(was, &new);
	*was_port = port;
	if (p->kind == KIND_ECHO)
		set_ports(&p->t, port, port);
	return true;
}
