/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learn.h: what servers tell the LB (6LB Table II). */
#pragma once
#include "count.h"
#include "flow.h"

/* learn and forget are createStickiness and removeStickiness. */
static __always_inline enum counter learn(const struct tuple *t, __u32 server, __u16 generation)
{
	switch (flow_create(t, server, generation, now_ns())) {
	case CREATED:
		return LB_STICKINESS_CREATED;
	case CREATED_AGAIN:
		return LB_STICKINESS_REPEATED;
	case CONFLICT:
		return LB_DROP_STICKINESS_CONFLICT;
	default:
		return LB_TABLE_FULL;
	}
}

static __always_inline enum counter forget(const struct tuple *t, const struct tcphdr *tcp,
					   __u32 server, __u16 generation)
{
	struct flow *f = flow_find(t);

	if (!f)
		return LB_REMOVE_UNKNOWN;
	if (f->generation != generation || f->server != server)
		return LB_REMOVE_OLD_GENERATION;
	flow_touch(f, now_ns());
	flow_close(f, tcp->rst ? CLOSED_RESET : CLOSED_SERVER);
	return LB_STICKINESS_REMOVED;
}
