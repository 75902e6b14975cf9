/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flows.h: the LB's flows. An entry has a partner if functions change the packets' tuple: then the
 * tuple before and the tuple after have an entry each, which name each other, and which a sweep
 * removes together. The map is the kernel's hash: an insertion is atomic, and no entry gives way
 * to another (an LRU map would break flows). */
#pragma once
#include "edge/flow_age.h"
#include "edge/types.h"
#include "core/clock.h"
#include "core/digest.h"
#include "core/stall.h"
#include "packet/parse.h"

enum {
	EDGE_INSTANCE_SHIFT = 24, /* of an instance's number in a flow's word */
	EDGE_SEEN_SHIFT = 28,	  /* dates are in 2^28 ns, so that most packets write none */
	EDGE_OVER = 4,		  /* dates without a packet, after which the flow may be over */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct edge_flow);
} edge_flows SEC(".maps");

/* Another number for each change of the prefixes, of 16 bits, not 0. It changes while the program runs,
 * so it is a map of its own. */
__u32 edge_prefix_version SEC(".data.edge_prefix_version") = 1;

const volatile __u64 edge_idle_ns = 300000000000ULL; /* without packets, then it is removed */

/* edge_hash is the digest of a packet's flow, in either direction, as its tuple has the client network's
 * end first. */
static __always_inline __u64 edge_hash(const struct packet *p)
{
	return digest(&p->t);
}

static __always_inline struct edge_flow *edge_flow_of(__u64 hash)
{
	return bpf_map_lookup_elem(&edge_flows, &hash);
}

static __always_inline __u64 edge_date(void)
{
	return ticked_ns() >> EDGE_SEEN_SHIFT;
}

/* edge_touch dates an entry. */
static __always_inline void edge_touch(struct edge_flow *f)
{
	__u64 now = edge_date();

	if (f->seen != now)
		f->seen = now;
}

/* edge_is_vouched: by the prefixes of now, the flow's packets from this side are of it. */
static __always_inline bool edge_is_vouched(const struct edge_flow *f, enum edge_side side)
{
	return READ_ONCE(f->vouched[side]) == READ_ONCE(edge_prefix_version);
}

/* edge_insert adds the packet's flow, or finds that of another CPU. NULL: the table is full. p->t has
 * the client network's end first. */
static __always_inline struct edge_flow *edge_insert(const struct packet *p, __u64 word,
						     __u64 partner)
{
	struct edge_flow fresh = {
		.word = word,
		.partner = partner,
		.seen = edge_date(),
		.end = p->t.client,
		.end_port_be = p->t.client_port_be,
	};
	__u64 hash = p->hash;

	bpf_map_update_elem(&edge_flows, &hash, &fresh, BPF_NOEXIST);
	return edge_flow_of(hash);
}

/* edge_silence is how many dates ago an entry had a packet; below 0 if that came after the clock was read. */
static __always_inline __s64 edge_silence(const struct edge_flow *f)
{
	return edge_date() - READ_ONCE(f->seen);
}

/* edge_is_idle: no packet of a tuple came for so long. */
static __always_inline bool edge_is_idle(const struct edge_flow *f)
{
	return edge_silence(f) >= (__s64)(edge_idle_ns >> EDGE_SEEN_SHIFT);
}

/* edge_expire removes a flow and its partner if both are idle. */
static __always_inline __u32 edge_expire(__u64 hash)
{
	struct edge_flow *f = edge_flow_of(hash), *other;
	__u64 partner;

	if (!f || !edge_is_idle(f))
		return 0;
	partner = f->partner;
	other = partner ? edge_flow_of(partner) : NULL;
	if (other && other->partner == hash && !edge_is_idle(other))
		return 0;
	bpf_map_delete_elem(&edge_flows, &hash);
	if (!other || other->partner != hash)
		return 1;
	bpf_map_delete_elem(&edge_flows, &partner);
	return 2;
}
