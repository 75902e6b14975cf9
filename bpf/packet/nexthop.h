/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* nexthop.h: the next hops of packets for other nodes than the LB's servers: the kernel's
 * routes and neighbours, copied by user space into a longest-prefix table. bpf_fib_lookup would
 * report "forwarding disabled" on every host that is no router. */
#pragma once
#include "core/types.h"

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_HOPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, struct next_hop);
} next_hops SEC(".maps");

/* Addresses without a next hop, for user space to resolve. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} unresolved SEC(".maps");

/* next_hop_to returns the link address towards addr, or NULL after it asked user space to
 * resolve addr. */
static __always_inline const struct next_hop *next_hop_to(const struct in6_addr *addr)
{
	struct prefix key = { .bits = 128, .addr = *addr };
	const struct next_hop *hop = bpf_map_lookup_elem(&next_hops, &key);

	if (hop && hop->ready)
		return hop;
	bpf_ringbuf_output(&unresolved, &key.addr, sizeof(key.addr), 0);
	return NULL;
}
