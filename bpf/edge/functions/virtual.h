/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* virtual.h: a virtual core, for a laboratory with more cores than its machine has. A packet takes
 * none of the real core's time; the virtual core serves packets in order, by calculation alone:
 *
 *	begins = max(arrives, free)	dropped if begins − arrives > the longest wait
 *	free = begins + cost		it stays free − arrives, and goes on at once
 *
 * So loads, losses and stays are those of a core that has nothing else to do, with a queue of its
 * own. A datagram with a stamp (struct virtual_stamp) arrives at the stamp's instant: delays of its
 * sender on a shared machine are no load. */
#pragma once
#include "edge/function.h"

#define OLDEST_STAMP_NS (1ULL << 36) /* a minute */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct virtual_setting);
} virtual_settings SEC(".maps");

/* The virtual cores. All functions of a core share it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_CORES);
	__type(key, __u32);
	__type(value, struct virtual_core);
} virtual_cores SEC(".maps");

/* arrival_of is when the packet came, in ns of CLOCK_MONOTONIC. */
static __always_inline __u64 arrival_of(struct xdp_md *ctx, const struct packet *p)
{
	__u64 now = bpf_ktime_get_ns();
	struct virtual_stamp stamp;

	if (p->kind != KIND_UDP || p->payload < sizeof(stamp) ||
	    bpf_xdp_load_bytes(ctx, p->l4 + sizeof(struct udphdr), &stamp, sizeof(stamp)))
		return now;
	if (stamp.magic != VIRTUAL_STAMP || stamp.ns > now || now - stamp.ns > OLDEST_STAMP_NS)
		return now;
	return stamp.ns;
}

/* serve lets a virtual core take a packet; false: it would wait too long. */
static __always_inline bool serve(struct virtual_core *c, const struct virtual_setting *set,
				  __u64 arrives)
{
	bool taken = false;
	__u64 begins;

	bpf_spin_lock(&c->lock);
	begins = c->free_ns > arrives ? c->free_ns : arrives;
	if (begins - arrives > set->longest_ns) {
		c->dropped++;
	} else {
		taken = true;
		c->free_ns = begins + set->ns;
		c->busy_ns += set->ns;
		c->stayed_ns += begins + set->ns - arrives;
		c->served++;
	}
	bpf_spin_unlock(&c->lock);
	return taken;
}

SEC("xdp")
int node_virtual(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	struct virtual_setting *set;
	struct virtual_core *c;
	__u32 slot, core;

	if (!s)
		return XDP_ABORTED;
	slot = s->slot;
	core = edge_core(s->outer.vni);
	set = bpf_map_lookup_elem(&virtual_settings, &slot);
	c = bpf_map_lookup_elem(&virtual_cores, &core);
	if (set && c && !serve(c, set, arrival_of(ctx, &s->packet)))
		return verdict(NODE_DROP_VIRTUAL, XDP_DROP);
	return next_function(ctx, s);
}
