/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* nexthop.h: the next hops of packets for other nodes than the LB's servers: the kernel's
 * routes and neighbours, copied by user space into a longest-prefix table. bpf_fib_lookup would
 * report "forwarding disabled" on every host that is no router. */
#pragma once
#include "core/limit.h"
#include "packet/scratch.h"

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_HOPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/* The default routes beside that table, and bits of the addresses that have another route: most
 * packets take a default route, without a search. A route shorter than 64 bits, or of IPv4, sets
 * the bits of all first 16 bits that its addresses have; a longer prefix, or an IPv4 address alone,
 * a bit by hash. User space sets bits before it adds routes, and clears them after it removed
 * some. */
enum {
	ZONES = 1 << 16
};

struct defaults {
	__u64 hop[2];		     /* a struct next_hop of IPv6, of IPv4; or 0 */
	__u64 zones[2 * ZONES / 64]; /* a bit for the first 16 bits of IPv6, then of IPv4 */
	__u64 hashed[ZONES / 64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space stores a word at once */
	__type(key, __u32);
	__type(value, struct defaults);
} default_hops SEC(".maps");

/* Addresses without a next hop, for user space to resolve. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} unresolved SEC(".maps");

/* default_hop returns the default route's struct next_hop, if addr has no other route, or 0. A
 * function of its own, as callers have no stack left for it. */
__noinline __u64 default_hop(const struct in6_addr *addr)
{
	__u32 zero = 0, zone, hash;
	const struct defaults *d = bpf_map_lookup_elem(&default_hops, &zero);
	__u64 upper, lower, bits;
	bool mapped;

	if (!addr || !d)
		return 0;
	upper = addr->s6_addr32[0] | (__u64)addr->s6_addr32[1] << 32;
	lower = addr->s6_addr32[2] | (__u64)addr->s6_addr32[3] << 32;
	mapped = !upper && addr->s6_addr32[2] == bpf_htonl(0xffff);
	zone = bpf_ntohs(mapped ? addr->s6_addr16[6] : addr->s6_addr16[0]) | ZONES * mapped;
	asm volatile("%0 &= %1" : "+r"(zone) : "i"(2 * ZONES - 1)); /* for Linux 6.1 */
	hash = (mapped ? lower : upper) * 0x9e3779b97f4a7c15ULL >> 48;
	bits = d->zones[zone / 64] >> zone % 64;
	bits |= d->hashed[hash / 64] >> hash % 64;
	return bits & 1 ? 0 : *(const volatile __u64 *)&d->hop[mapped];
}

/* next_hop_to returns the link address towards addr, or NULL after it asked user space to
 * resolve addr, within limits. It is a copy, so that the verifier looks at the rest once. */
static __always_inline const struct next_hop *next_hop_to(const struct in6_addr *addr)
{
	struct prefix key = { .bits = 128, .addr = *addr };
	struct scratch *scr = scratch();
	const struct next_hop *hop;

	if (!scr)
		return NULL;
	*(__u64 *)&scr->hop = default_hop(addr);
	if (!scr->hop.ready) {
		hop = bpf_map_lookup_elem(&next_hops, &key);
		if (hop)
			scr->hop = *hop;
	}
	if (scr->hop.ready)
		return &scr->hop;
	if (may_tell(LIMIT_RESOLVE, addr, 0))
		bpf_ringbuf_output(&unresolved, &key.addr, sizeof(key.addr), 0);
	return NULL;
}
