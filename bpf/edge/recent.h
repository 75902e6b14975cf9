/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* recent.h: the flows that a CPU had packets of since this date began: a record for each direction. The
 * digest of a flow and a search in the kernel's hash would be half of the cost of its packet. A
 * record stands for the flow's entry, which bears this date, so no sweep removes it meanwhile. Where
 * an entry gets another instance, or is removed early, a new era begins: all CPUs' records are void. */
#pragma once
#include "core/digest.h"
#include "edge/flows.h"

/* The records of all CPUs, one CPU's after the other's: a per-CPU map would have each record apart, and
 * across cache lines. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading: 2^EDGE_RECENT_BITS a CPU */
	__type(key, __u32);
	__type(value, struct edge_recent);
} edge_recent_flows SEC(".maps");

/* A section, and so a map of its own: .bss has the clock of tests. */
__u64 edge_era SEC(".data.era") = 0;

/* edge_end_era comes after the change of an entry. */
static __always_inline void edge_end_era(void)
{
	__sync_fetch_and_add(&edge_era, 1);
}

/* edge_stamp is that of the records of now, of packets from a side: read before an entry of which one is
 * made. */
static __always_inline __u64 edge_stamp(__u64 now, enum edge_side side)
{
	return READ_ONCE(edge_era) << 32 | (__u32)(now >> EDGE_SEEN_SHIFT << 1) | side;
}

/* edge_recent_at returns the place of a flow's record. Flows that share it cost each other a search, no
 * more, so the place takes less than a digest. */
static __always_inline struct edge_recent *edge_recent_at(const struct tuple *t)
{
	const __u64 *word = (const void *)t;
	__u64 sum = 0;
	__u32 at;

	for (int i = 0; i < TUPLE_PAIRS; i++)
		sum += word[i];
	at = bpf_get_smp_processor_id() << EDGE_RECENT_BITS;
	at |= sum * flow_key.odd[0] >> (64 - EDGE_RECENT_BITS);
	return bpf_map_lookup_elem(&edge_recent_flows, &at);
}

/* edge_is_recent: the record is the flow's, and in force. */
static __always_inline bool edge_is_recent(const struct edge_recent *r, const struct tuple *t,
					   __u64 stamp)
{
	const __u64 *a = (const void *)&r->t, *b = (const void *)t;

	return a[0] == b[0] && a[1] == b[1] && a[2] == b[2] && a[3] == b[3] && a[4] == b[4] &&
	       r->stamp == stamp;
}

/* edge_set_word gives a flow another instance, unless its word has changed meanwhile. */
static __always_inline bool edge_set_word(struct edge_flow *f, __u64 was, __u64 word)
{
	if (!compare_and_swap(&f->word, was, word))
		return false;
	edge_end_era();
	return true;
}
