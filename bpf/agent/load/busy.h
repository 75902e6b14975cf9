/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* busy.h: the load measure `busy`: requests in progress, connections in the accept queue,
 * and pending connections. A request is in progress from payload inward to payload outward;
 * a connection is pending from its acceptance to the end of its handshake. */
#pragma once
#include "agent/flags.h"
#include "agent/listener.h"
#include "agent/load/loads.h"
#include "agent/load/pending.h"

static __always_inline __u64 busy_load(const struct offering *o, const struct load *l,
				       const struct listener *here, __u64 now)
{
	return l->asking + here->queue + pending_count(l, epoch_of(now), o->cores);
}

/* busy_on_in counts a request of an established flow: its removal always takes back the
 * count. */
static __always_inline void busy_on_in(struct conn *c)
{
	struct load *l;

	if (!set_flag(c, CONN_ASKING))
		return;
	l = load_at(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking, 1);
}

static __always_inline void busy_on_out(struct conn *c)
{
	struct load *l;

	if (!clear_flag(c, CONN_ASKING))
		return;
	l = load_at(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking, -1);
}

static __always_inline void busy_on_arrival(struct conn *c)
{
	struct load *l;

	if (!clear_flag(c, CONN_PENDING))
		return;
	l = load_at(c->offering);
	if (l)
		pending_remove(l, c->epoch);
}
