/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* ids.h: counts the packets with some patterns of bytes in their payload, and drops those of
 * patterns that are set to. */
#pragma once
#include "edge/payload_search.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SLOTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct ids_setting);
} ids_settings SEC(".maps");

/* The packets with each pattern of each place. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_SLOTS *MAX_PATTERNS);
	__type(key, __u32);
	__type(value, __u64);
} ids_counts SEC(".maps");

static __always_inline void count_pattern(__u32 slot, __u32 pattern)
{
	__u32 at = slot * MAX_PATTERNS + pattern;
	__u64 *n = bpf_map_lookup_elem(&ids_counts, &at);

	if (n)
		++*n;
}

/* is_dropped counts the patterns that the payload has; true: a pattern that is not let through is among them. */
static __always_inline bool is_dropped(const struct ids_setting *set, const struct scan *b,
				       __u32 slot)
{
	bool drop = false;

	for (__u32 i = 0; i < MAX_PATTERNS && i < set->patterns; i++) {
		if (seek_pattern(b, &set->pattern[i], 0) == SCAN_BYTES)
			continue;
		count_pattern(slot, i);
		drop |= set->pattern[i].drop;
	}
	return drop;
}

SEC("xdp")
int node_ids(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	const struct ids_setting *set;
	struct scan *b = scan();
	__u32 slot;

	if (!s || !b)
		return XDP_ABORTED;
	slot = s->slot;
	set = bpf_map_lookup_elem(&ids_settings, &slot);
	if (set && load_payload(ctx, &s->packet, b) && is_dropped(set, b, slot))
		return verdict(NODE_DROP_IDS, XDP_DROP);
	return next_function(ctx, s);
}
