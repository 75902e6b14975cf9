/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* scratch.h: the facts of a packet that the LB's programs of a CPU hand on to each other, and the programs
 * that are called by tail calls. */
#pragma once
#include "edge/tunnel.h"

/* A packet on its way through the programs of a CPU. */
struct edge_scratch {
	struct packet packet;
	struct edge_outer outer;
	__u32 side;    /* enum edge_side: of the chain that the packet meets, it comes from there */
	__u32 way;     /* enum edge_way, to the node */
	__u32 between; /* it passed the chain of another service before */
	__u32 version; /* of the prefixes, if they show that it is of its side; else 0 */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct edge_scratch);
} edge_scratch_of_cpu SEC(".maps");

int edge_new(struct xdp_md *ctx);
int edge_answer(struct xdp_md *ctx);
int edge_unbound(struct xdp_md *ctx);
int edge_narrow(struct xdp_md *ctx);

enum edge_program {
	PROGRAM_NEW,
	PROGRAM_ANSWER,
	PROGRAM_UNBOUND,
	PROGRAM_NARROW,
	PROGRAMS
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__array(values, int(void *));
} edge_programs SEC(".maps") = {
	.values = {
		[PROGRAM_NEW] = (void *)&edge_new,
		[PROGRAM_ANSWER] = (void *)&edge_answer,
		[PROGRAM_UNBOUND] = (void *)&edge_unbound,
		[PROGRAM_NARROW] = (void *)&edge_narrow,
	},
};

/* set_way sets the side of a packet with a way. */
static __always_inline void set_way(struct edge_scratch *s, __u32 way)
{
	s->way = way;
	s->side = way & WAY_INWARD ? SIDE_WORLD : SIDE_CLIENTS;
	s->between = 0;
	s->version = 0;
}

static __always_inline struct edge_scratch *edge_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&edge_scratch_of_cpu, &zero);
}
