/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* cost.h: a function that takes a set time of its core for each packet, to stand for any other. It
 * ends by the clock, as a count of instructions would take half as long or twice. */
#pragma once
#include "edge/function.h"

#define MOST_TURNS (1 << 20) /* of the clock: some 20 ms */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct cost_setting);
} cost_settings SEC(".maps");

/* burn_until is the callback of bpf_loop: 1 ends it. */
static long burn_until(__u64 i, __u64 *end)
{
	return bpf_ktime_get_ns() >= *end;
}

SEC("xdp")
int node_cost(struct xdp_md *ctx)
{
	__u64 end = bpf_ktime_get_ns();
	struct node_state *s = node_state();
	struct cost_setting *c;
	__u32 slot;

	if (!s)
		return XDP_ABORTED;
	slot = s->slot;
	c = bpf_map_lookup_elem(&cost_settings, &slot);
	if (c) {
		end += c->ns;
		bpf_loop(MOST_TURNS, burn_until, &end, 0);
	}
	return next_function(ctx, s);
}
