/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* work.h: what is too large for the stack. One packet a CPU is worked on at a
 * time. */
#pragma once
#include "packet/rewrite.h"

struct scratch {
	struct packet packet;
	struct sr sr;
	struct route route;
	struct destination destination;
	__u32 quoted_mtu; /* LB: where the packet inside was too big for, if it was quoted */
	__u32 sender;	  /* LB: number of the server that says something of a flow */
	__u32 outcome;	  /* LB: enum counter, what became of that */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch_of_cpu SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch_of_cpu, &zero);
}
