/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* load.h: how busy a service is, by its load measure, and the decision on an offer that
 * follows from it. */
#pragma once
#include "agent/accept.h"
#include "agent/listener.h"
#include "agent/offerings.h"
#include "agent/pending.h"

#define STALE_NS 1000000000ULL /* a page not written for longer has lost its writer */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct load);
} loads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct reported);
} reports SEC(".maps");

static __always_inline struct load *load_at(__u32 i)
{
	return bpf_map_lookup_elem(&loads, &i);
}

/* reported_busy reads the load page's copy; returns false if it is stale. */
static __always_inline bool reported_busy(__u32 index, __u64 now, __u32 *busy)
{
	const struct reported *r = bpf_map_lookup_elem(&reports, &index);

	if (!r || !r->written_ns)
		return false;
	if (now + STALE_NS < r->written_ns || r->written_ns + STALE_NS < now)
		return false; /* long ago, or by another clock */
	*busy = r->busy;
	return true;
}

enum willingness {
	WILLING,
	TOO_BUSY,
	LOAD_UNKNOWN, /* the page is stale: the next candidate decides by a known load */
};

/* would_accept decides an offer that could be passed on. */
static __always_inline enum willingness would_accept(const struct offering *o, struct load *l,
						     const struct listener *here, __u64 now)
{
	__u32 busy = 0;
	bool yes;

	if (o->measure == MEASURE_PAGE && o->acceptance != ACCEPT_ALWAYS &&
	    !reported_busy(o->index, now, &busy))
		return LOAD_UNKNOWN;
	if (o->measure == MEASURE_SOCKETS)
		busy = l->open;
	if (o->measure == MEASURE_BUSY)
		busy = l->asking + here->queue;

	if (o->measure == MEASURE_BUSY)
		busy += pending_count(l, epoch_of(now), o->cores);
	if (o->acceptance != ACCEPT_DYNAMIC)
		return accepts(o, l, busy) ? WILLING : TOO_BUSY;
	bpf_spin_lock(&l->lock);
	yes = accepts(o, l, busy);
	bpf_spin_unlock(&l->lock);
	return yes ? WILLING : TOO_BUSY;
}
