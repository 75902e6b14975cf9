/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* samples.h: one in so many packets of flows, from which user space sees the flows with the most. The
 * count of packets, which each packet writes anyway, tells which: others pay for a comparison alone. */
#pragma once
#include "core/clock.h"
#include "edge/types.h"
#include "packet/parse.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct edge_samples_of_cpu);
} edge_samples SEC(".maps");

/* sample keeps a packet of a flow with this word in the place of the oldest sample of the CPU. */
static __always_inline void sample(const struct packet *p, __u64 word, bool of_clients)
{
	__u32 zero = 0;
	struct edge_samples_of_cpu *all = bpf_map_lookup_elem(&edge_samples, &zero);
	struct edge_sample *s;

	if (!all)
		return;
	s = &all->of[all->next++ % EDGE_SAMPLES];
	s->t = p->t;
	s->hash = p->hash;
	s->at_ns = ticked_ns();
	s->instance = word & EDGE_INSTANCE;
	s->bytes = p->length | (of_clients ? EDGE_OF_CLIENTS : 0);
}
