/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* node_flows.h: the flows that passed this node's chains, so that it can answer an LB that does not know
 * their instance. A flow whose tuple the functions change has two entries, of the tuple before and
 * the tuple after. User space removes idle flows. The digest is by a key of this node's, as it has no LB's. */
#pragma once
#include "core/digest.h"
#include "edge/function.h"

enum {
	KEPT_SEEN_SHIFT = 28, /* dates are in 2^28 ns, so that most packets write none */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__type(key, __u64);
	__type(value, struct kept_flow);
} node_flows SEC(".maps");

static __always_inline __u32 kept_date(void)
{
	return ticked_ns() >> KEPT_SEEN_SHIFT;
}

/* kept_hash is the digest of the packet's flow, the same in both directions. */
static __always_inline __u64 kept_hash(const struct packet *p, bool inward)
{
	struct tuple t = flow_of(p, inward);

	return digest(&t);
}

/* note_flow reads the flow's entry before the chain. */
static __always_inline void note_flow(struct node_state *s)
{
	__u32 instance = s->outer.vni & EDGE_OWN_PART;
	__u64 hash = kept_hash(&s->packet, s->inward);
	const struct kept_flow *f = bpf_map_lookup_elem(&node_flows, &hash);

	s->flow = hash;
	s->kept = f && f->instance == instance && f->seen == kept_date();
}

/* keep_tuple makes or renews an entry. */
static __always_inline void keep_tuple(__u64 hash, __u32 instance)
{
	struct kept_flow now = { .instance = instance, .seen = kept_date() };
	struct kept_flow *f = bpf_map_lookup_elem(&node_flows, &hash);

	if (!f) {
		if (bpf_map_update_elem(&node_flows, &hash, &now, BPF_ANY))
			count(NODE_FLOW_UNKEPT);
		return;
	}
	if (READ_ONCE(f->instance) != instance)
		count(NODE_FLOW_MOVED);
	*(volatile __u64 *)f = *(const __u64 *)&now;
}

/* keep_before keeps the flow by its tuple before the chain. An ICMP error makes none. */
static __always_inline void keep_before(const struct node_state *s)
{
	if (!s->kept && s->packet.kind != KIND_ERROR)
		keep_tuple(s->flow, s->outer.vni & EDGE_OWN_PART);
}

/* keep_flow keeps the flow of a packet that passed its chain. */
static __always_inline void keep_flow(const struct node_state *s)
{
	__u32 instance = s->outer.vni & EDGE_OWN_PART;
	__u64 after;

	if (s->kept || s->packet.kind == KIND_ERROR)
		return;
	keep_before(s);
	after = s->changed ? kept_hash(&s->packet, s->inward) : s->flow;
	if (after != s->flow)
		keep_tuple(after, instance);
}

/* kept_instance returns core and service of a flow, or 0. */
static __always_inline __u32 kept_instance(__u64 hash)
{
	const struct kept_flow *f = bpf_map_lookup_elem(&node_flows, &hash);

	return f ? READ_ONCE(f->instance) : 0;
}
