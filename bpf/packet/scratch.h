/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* scratch.h: data too large for the stack. A CPU processes a single packet at a time. */
#pragma once
#include "packet/rewrite.h"

struct scratch {
	struct packet packet;
	struct sr sr;
	struct route route;
	struct destination destination;
	struct conn entry; /* agent: of a flow, to be written into the table */
	__u64 word;	   /* LB: of the flow that a signal is about */
	__u64 sought;	   /* LB: the latest digest that was sought in the table of before */
	__u32 sender;	   /* LB: number of the server that signals, or NO_SERVER */
	__u32 outcome;	   /* agent: enum counter, of a packet that it returns */
	struct next_hop hop __attribute__((aligned(8))); /* where the packet goes */
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
