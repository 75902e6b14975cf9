/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* busy.h: the load measure `busy`: requests in progress and connections in the accept queue. A request is in progress from payload inward to payload outward;
 * a connection is pending from its acceptance to the end of its handshake. */
#pragma once
#include "agent/flags.h"
#include "agent/listener.h"
#include "agent/load/loads.h"
#include "agent/load/pending.h"

static __always_inline __u64 busy_load(const struct load *l, const struct listener *here)
{
	__s32 asking = l->asking[0] + l->asking[1];

	if (asking < 0) /* until the next recount */
		asking = 0;
	return asking + here->queue;
}

#define ASKING_IN_EITHER (CONN_ASKING | CONN_ASKING_ODD)

/* asking_flag is the flag of asking[0] or asking[1]. */
static __always_inline __u32 asking_flag(__u32 count)
{
	return count ? CONN_ASKING_ODD : CONN_ASKING;
}

static __always_inline void uncount_asking(struct load *l, __u32 flags)
{
	if (flags & CONN_ASKING)
		__sync_fetch_and_add(&l->asking[0], -1);
	if (flags & CONN_ASKING_ODD)
		__sync_fetch_and_add(&l->asking[1], -1);
}

/* busy_on_in counts a request of an established flow: its removal always takes back the
 * count. */
static __always_inline void busy_on_in(struct conn *c)
{
	__u32 count = counting & 1;
	struct load *l;

	stall();
	if (c->flags & ASKING_IN_EITHER || !set_flag(c, asking_flag(count)))
		return;
	l = load_at(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking[count], 1);
}

static __always_inline void busy_on_out(struct conn *c, bool answers)
{
	struct load *l;
	__u32 was;

	if (!(c->flags & ASKING_IN_EITHER))
		return;
	was = __sync_fetch_and_and(flags_word(c), ~ASKING_IN_EITHER);
	l = load_at(c->offering);
	if (!l)
		return;
	uncount_asking(l, was);
	if (answers && was & ASKING_IN_EITHER)
		__sync_fetch_and_add(&l->answered, 1);
}

/* uncount_pending is a function of its own, so that the verifier looks at it once. */
__noinline int uncount_pending(struct conn *c)
{
	struct load *l;

	if (!c || !clear_flag(c, CONN_PENDING))
		return 0;
	l = load_at(c->offering);
	if (l)
		pending_remove(l, c->epoch);
	return 0;
}

static __always_inline void busy_on_arrival(struct conn *c)
{
	if (c->flags & CONN_PENDING)
		uncount_pending(c);
}
