/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* floors.h: the cost floors: programs that do one part of the work of a load balancer of
 * IPv6 and TCP, and nothing else. Each is linked in place of bench.bpf.c's target. */
#pragma once
#include "packet/parse.h"
#include <linux/pkt_cls.h>

struct cache_line {
	__u64 word[8];
};

/* A flow's value in the kernel's own maps, of the size that an entry needs. */
struct floor_entry {
	__u64 seen_ns;
	__u64 server;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, struct cache_line);
} cache_lines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct tuple);
	__type(value, struct floor_entry);
} hashed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct tuple);
	__type(value, struct floor_entry);
} recent SEC(".maps");

const volatile __u32 line_count = 1;

/* frame_bytes is a frame's length. In 64 bits: the verifier allows no less. */
static __always_inline __u64 frame_bytes(struct xdp_md *ctx)
{
	__u64 end = (long)ctx->data_end, from = (long)ctx->data;

	asm volatile("%0 -= %1" : "+r"(end) : "r"(from));
	return end;
}

/* read_flow reads the flow of an IPv6 TCP frame. */
static __always_inline bool read_flow(struct xdp_md *ctx, struct tuple *t)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip = take(&c, sizeof(*ip));
	struct tcphdr *tcp = take(&c, sizeof(*tcp));

	if (!eth || !ip || !tcp || eth->h_proto != bpf_htons(ETH_P_IPV6) || ip->version != 6 ||
	    ip->nexthdr != IPPROTO_TCP)
		return false;
	*t = (struct tuple){
		.client = ip->saddr,
		.vip = ip->daddr,
		.client_port_be = tcp->source,
		.vip_port_be = tcp->dest,
		.protocol = IPPROTO_TCP,
	};
	return true;
}

/* add_outer puts an outer header towards a server before the packet. */
static __always_inline int add_outer(struct xdp_md *ctx, const struct tuple *t, __u32 server)
{
	__u16 payload = frame_bytes(ctx) - sizeof(struct ethhdr);
	struct cursor c;
	struct ethhdr *eth;
	struct ipv6hdr *ip;

	if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct ipv6hdr)))
		return XDP_ABORTED;
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	ip = take(&c, sizeof(*ip));
	if (!eth || !ip)
		return XDP_ABORTED;
	*eth = (struct ethhdr){ .h_dest = { 2, 0, 0, 0, 1, server },
				.h_source = { 2, 0, 0, 0, 0, 0x11 },
				.h_proto = bpf_htons(ETH_P_IPV6) };
	*ip = (struct ipv6hdr){ .version = 6,
				.payload_len = bpf_htons(payload),
				.nexthdr = IPPROTO_IPV6,
				.hop_limit = 64,
				.saddr = t->vip,
				.daddr = t->client };
	return XDP_TX;
}

/* nh is NH, a universal hash (Black et al., UMAC, 1999). */
static __always_inline __u32 nh(const struct tuple *t)
{
	static const __u32 key[10] = { 0x9e3779b1, 0x85ebca6b, 0xc2b2ae35, 0x27d4eb2f, 0x165667b1,
				       0xd3a2646c, 0xfd7046c5, 0xb55a4f09, 0x8ebc6af1, 0x2545f491 };
	const __u32 *word = (const void *)t;
	__u64 sum = 0;

	for (int i = 0; i < 10; i += 2)
		sum += (__u64)(word[i] + key[i]) * (word[i + 1] + key[i + 1]);
	return sum * 0x9e3779b97f4a7c15ULL >> 32;
}

SEC("xdp")
int loop(struct xdp_md *ctx)
{
	return ctx->data ? XDP_TX : XDP_ABORTED;
}

SEC("xdp")
int adjust_head(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, -(int)sizeof(struct ipv6hdr)) ? XDP_ABORTED : XDP_TX;
}

SEC("xdp")
int encapsulate(struct xdp_md *ctx)
{
	struct tuple t;

	return read_flow(ctx, &t) ? add_outer(ctx, &t, 1) : XDP_ABORTED;
}

/* random_line is encapsulate and one read of a random line of a large array. */
SEC("xdp")
int random_line(struct xdp_md *ctx)
{
	struct cache_line *l;
	struct tuple t;
	__u32 at;

	if (!read_flow(ctx, &t))
		return XDP_ABORTED;
	at = (__u64)nh(&t) * line_count >> 32;
	l = bpf_map_lookup_elem(&cache_lines, &at);
	return l ? add_outer(ctx, &t, l->word[nh(&t) % 8]) : XDP_ABORTED;
}

static __always_inline int lookup_flow(void *map, struct xdp_md *ctx)
{
	struct floor_entry *n;
	struct tuple t;

	if (!read_flow(ctx, &t))
		return XDP_ABORTED;
	n = bpf_map_lookup_elem(map, &t);
	return n ? (n->server ? XDP_TX : XDP_DROP) : XDP_PASS;
}

static __always_inline int insert_flow(void *map, struct xdp_md *ctx)
{
	struct floor_entry n = { .server = 1 };
	struct tuple t;

	if (!read_flow(ctx, &t))
		return XDP_ABORTED;
	return bpf_map_update_elem(map, &t, &n, BPF_NOEXIST) ? XDP_DROP : XDP_TX;
}

SEC("xdp")
int hash(struct xdp_md *ctx)
{
	return lookup_flow(&hashed, ctx);
}

SEC("xdp")
int lru_hash(struct xdp_md *ctx)
{
	return lookup_flow(&recent, ctx);
}

SEC("xdp")
int hash_insert(struct xdp_md *ctx)
{
	return insert_flow(&hashed, ctx);
}

SEC("xdp")
int lru_hash_insert(struct xdp_md *ctx)
{
	return insert_flow(&recent, ctx);
}

SEC("xdp")
int clock(struct xdp_md *ctx)
{
	return ctx->data && bpf_ktime_get_ns() ? XDP_TX : XDP_ABORTED;
}

#define CALLS 10

static __noinline __u64 called(__u64 n)
{
	asm volatile("" : "+r"(n));
	return n;
}

/* calls is loop and CALLS calls of a function that does nothing. */
SEC("xdp")
int calls(struct xdp_md *ctx)
{
	__u64 n = frame_bytes(ctx);

#pragma unroll
	for (int i = 0; i < CALLS; i++)
		n = called(n);
	return n ? XDP_TX : XDP_ABORTED;
}

/* helpers is loop and CALLS calls of a helper that reads a number. */
SEC("xdp")
int helpers(struct xdp_md *ctx)
{
	__u64 n = frame_bytes(ctx);

#pragma unroll
	for (int i = 0; i < CALLS; i++)
		n |= bpf_get_numa_node_id();
	return n ? XDP_TX : XDP_ABORTED;
}

/* loop_out is loop for tc. */
SEC("tc")
int loop_out(struct __sk_buff *skb)
{
	return skb->len ? TC_ACT_OK : TC_ACT_SHOT;
}
