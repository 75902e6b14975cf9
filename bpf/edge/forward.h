/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* forward.h: packets that left their tunnel go on to their destination, as by a router. An edge LB
 * and a node are routers (forwarding=1), so the kernel's FIB answers. The kernel itself has the
 * rest: a neighbour that is not resolved, a route to nowhere, a packet that is too long, a hop
 * limit that ends: it forwards, or answers by ICMP. */
#pragma once
#include "core/count.h"
#include "core/limit.h"
#include "packet/ip_header.h"

#ifndef AF_INET
#define AF_INET 2
#define AF_INET6 10
#endif

/* fill_fib asks for the packet that is first in the frame. */
static __always_inline bool fill_fib(struct xdp_md *ctx, const struct packet *p,
				     struct bpf_fib_lookup *fib)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);

	fib->l4_protocol = p->t.protocol;
	fib->tot_len = p->length;
	fib->ifindex = ctx->ingress_ifindex;
	fib->tos = p->class;
	if (p->family == 6) {
		struct ipv6hdr *ip = take(&c, sizeof(*ip));

		if (!ip)
			return false;
		fib->family = AF_INET6;
		fib->flowinfo = *(__be32 *)ip & bpf_htonl(0x0fffffff);
		copy_address((void *)fib->ipv6_src, &ip->saddr);
		copy_address((void *)fib->ipv6_dst, &ip->daddr);
		return true;
	}
	struct iphdr *ip = take(&c, sizeof(*ip));

	if (!ip)
		return false;
	fib->family = AF_INET;
	fib->ipv4_src = ip->saddr;
	fib->ipv4_dst = ip->daddr;
	return true;
}

/* find_way asks the kernel for the way of the packet, which is first in the frame. */
static __always_inline long find_way(struct xdp_md *ctx, const struct packet *p,
				     struct bpf_fib_lookup *fib)
{
	if (!fill_fib(ctx, p, fib) || p->hop_limit <= 1)
		return BPF_FIB_LKUP_RET_NOT_FWDED;
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* may_find: the kernel may look for the neighbour that a packet's way needs. */
static __always_inline bool may_find(const struct bpf_fib_lookup *fib)
{
	struct in6_addr to;

	if (fib->family == AF_INET6)
		copy_address(&to, (const void *)fib->ipv6_dst);
	else
		to = mapped(fib->ipv4_dst);
	return may_tell(LIMIT_NEIGHBOUR, &to, 0);
}

/* take_way sends the packet, behind a link header for this host, on the way that find_way found. It
 * counts `sent`, or else `passed` or `limited`. */
static __always_inline int take_way(struct xdp_md *ctx, struct packet *p,
				    const struct bpf_fib_lookup *fib, long way, __u32 sent,
				    __u32 passed, __u32 limited)
{
	struct ethhdr *eth;
	struct cursor c;

	if (way == BPF_FIB_LKUP_RET_NO_NEIGH && !may_find(fib))
		return verdict(limited, XDP_DROP);
	if (way != BPF_FIB_LKUP_RET_SUCCESS || dec_hop_limit(ctx, p))
		return verdict(passed, XDP_PASS);
	c = frame_at(ctx, 0);
	eth = take(&c, sizeof(*eth));
	if (!eth)
		return verdict(passed, XDP_PASS);
	__builtin_memcpy(eth->h_dest, fib->dmac, ETH_ALEN);
	__builtin_memcpy(eth->h_source, fib->smac, ETH_ALEN);
	count(sent);
	return bpf_redirect(fib->ifindex, 0);
}

/* forward finds and takes the packet's way. */
static __always_inline int forward(struct xdp_md *ctx, struct packet *p, __u32 sent, __u32 passed,
				   __u32 limited)
{
	struct bpf_fib_lookup fib = {};

	return take_way(ctx, p, &fib, find_way(ctx, p, &fib), sent, passed, limited);
}
