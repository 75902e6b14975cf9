/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sweep.h: the removal of the LB's flows that are over. */
#pragma once
#include "edge/flows.h"
#include "packet/parse.h"

/* Keeps the frame's layout in the object's BTF. */
const struct edge_expiry *const volatile edge_expiry_layout = NULL;

/* The argument of expire_one. */
struct edge_sweeping {
	struct xdp_md *ctx;
	__u32 removed;
	__u32 zero;
};

/* expire_one is the callback of bpf_loop. */
static long expire_one(__u64 i, struct edge_sweeping *s)
{
	__u64 hash;

	if (i >= MAX_EXPIRING ||
	    bpf_xdp_load_bytes(s->ctx,
			       __builtin_offsetof(struct edge_expiry, hash) + i * sizeof(hash),
			       &hash, sizeof(hash)))
		return 1;
	s->removed += edge_expire(hash);
	return 0;
}

/* sweep_edge removes those of some flows that are idle. The daemon looks for them, and runs it by
 * BPF_PROG_RUN on each CPU, with a struct edge_expiry as the frame. */
SEC("xdp")
int sweep_edge(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct edge_sweeping s = { .ctx = ctx };
	struct edge_expiry *e = c.pos;

	if ((void *)(&e->removed + 1) > c.end)
		return XDP_ABORTED;
	bpf_loop(e->count, expire_one, &s, 0);
	e = (void *)(long)ctx->data;
	if ((void *)(&e->removed + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	e->now = ticked_ns();
	e->removed = s.removed;
	return XDP_DROP;
}
