/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* function.h: the interface of a network function. A function is an XDP program of its own, in a
 * file of bpf/edge/functions/. docs/operate/functions.md has the other places that need a row:
 *
 *	SEC("xdp")
 *	int node_example(struct xdp_md *ctx)
 *	{
 *		struct node_state *s = node_state();
 *
 *		if (!s)
 *			return XDP_ABORTED;
 *		... the packet is first in the frame, behind a link header ...
 *		return next_function(ctx, s);
 *	}
 *
 * It reads the packet's facts in s->packet, and s->inward: the packet goes to the client network. That
 * is the LB's word, by the link that the packet came by: no function tells it by addresses.
 * If it changes the packet, it keeps the facts and the checksums true and sets s->changed. To drop
 * the packet it returns verdict(reason, XDP_DROP). Its settings and its state are in maps of its
 * own: settings by s->slot, which names its place in the chain, the same in both directions; inward
 * packets meet the chain in reverse order. */
#pragma once
#include "core/clock.h"
#include "core/stall.h"
#include "edge/nf_counters.h"
#include "edge/tuple.h"
#include "edge/tunnel.h"

/* A packet on its way through a chain. A CPU has a single packet at a time. */
struct node_state {
	struct packet packet;
	struct edge_outer outer;
	__u64 flow; /* digest of the tuple before the chain (edge/node_flows.h) */
	__u32 kept; /* its entry is as it would be written */
	__u32 zero;
	__u32 changed; /* its headers or its payload */
	__u32 inward;
	__u32 first;  /* index of its chain in node_functions */
	__u32 passed; /* functions */
	__u32 length; /* of the chain */
	__u32 slot;   /* of the function that has it now */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct node_state);
} node_state_of_cpu SEC(".maps");

enum {
	CHAIN_PROGRAMS = MAX_CHAIN + 1, /* the functions, and node_out */
};

/* The programs of all chains: for each service the outward order, then the inward order. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2 * MAX_EDGE_SERVICES * CHAIN_PROGRAMS);
	__type(key, __u32);
	__type(value, __u32);
} node_functions SEC(".maps");

static __always_inline struct node_state *node_state(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&node_state_of_cpu, &zero);
}

/* call_function gives the packet to the function after so many. */
static __always_inline int call_function(struct xdp_md *ctx, struct node_state *s)
{
	__u32 place = s->inward ? s->length - 1 - s->passed : s->passed;

	s->slot = edge_service_of(s->outer.vni) * MAX_CHAIN + place % MAX_CHAIN;
	bpf_tail_call(ctx, &node_functions, s->first + s->passed);
	return verdict(NODE_DROP_NO_FUNCTION, XDP_DROP);
}

static __always_inline int next_function(struct xdp_md *ctx, struct node_state *s)
{
	s->passed++;
	return call_function(ctx, s);
}

/* Keeps the frame's layout in the object's BTF. */
const struct node_expiry *const volatile node_expiry_layout = NULL;

/* A step of a sweep: user space walks a function's table, and names the flows that were quiet. So a
 * run's work is bounded, and no packet waits for a whole table. */
struct node_sweeping {
	struct xdp_md *ctx;
	__u32 removed;
	__u32 zero;
};

/* flow_to_expire reads a flow of the step; false: there is none. */
static __always_inline bool flow_to_expire(struct node_sweeping *s, __u64 i, struct node_flow *f)
{
	const __u32 first = __builtin_offsetof(struct node_expiry, flow);

	return i < MAX_NODE_EXPIRING &&
	       !bpf_xdp_load_bytes(s->ctx, first + i * sizeof(*f), f, sizeof(*f));
}

/* expiry_of is the head of the frame of a step. */
static __always_inline struct node_expiry *expiry_of(struct xdp_md *ctx)
{
	struct node_expiry *e = (void *)(long)ctx->data;

	return (void *)e->flow > (void *)(long)ctx->data_end ? NULL : e;
}

/* is_quiet: the last packet came so long ago, and not after this CPU read its clock. */
static __always_inline bool is_quiet(__u64 seen, __u64 age)
{
	return (__s64)(ticked_ns() - seen) >= (__s64)age;
}

/* sweep_some calls a function's callback of bpf_loop for each flow of the step. */
static __always_inline int sweep_some(struct xdp_md *ctx,
				      long (*expire)(__u64 i, struct node_sweeping *s))
{
	struct node_sweeping s = { .ctx = ctx };
	struct node_expiry *e = expiry_of(ctx);

	if (!e)
		return XDP_ABORTED;
	bpf_loop(e->count, expire, &s, 0);
	e = expiry_of(ctx);
	if (!e)
		return XDP_ABORTED;
	e->now = ticked_ns();
	e->removed = s.removed;
	return XDP_DROP;
}
