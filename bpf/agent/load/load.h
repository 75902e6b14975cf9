/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* load.h: the load of a service, by its load measure. A measure is a header of its own with
 * a function that returns the load, and a row in load_of. */
#pragma once
#include "agent/load/busy.h"
#include "agent/load/page.h"
#include "agent/load/sockets.h"
#include "agent/load/work.h"

enum measure {
	MEASURE_BUSY = 0,
	MEASURE_SOCKETS = 1,
	MEASURE_PAGE = 2,
	MEASURE_WORK = 3,
};

/* load_of returns the load of a service, or NO_LOAD; `here` is its listener. Where requests
 * are counted, pending connections will bring some. A function of
 * its own: the verifier follows the ways of each measure once. */
__noinline __u64 load_of(const struct offering *o, const struct listener *here, __u64 now)
{
	const struct load *l = o && here ? load_at(o->index) : NULL;
	__u64 load;

	if (!l)
		return NO_LOAD;
	switch (o->measure) {
	case MEASURE_BUSY:
		load = busy_load(l, here);
		break;
	case MEASURE_SOCKETS:
		return sockets_load(o);
	case MEASURE_PAGE:
		return page_load(o, now);
	case MEASURE_WORK:
		load = work_load(o, here, now);
		break;
	default:
		return NO_LOAD;
	}
	return load == NO_LOAD ? NO_LOAD : load + pending_count(l, epoch_of(now), o->cores);
}

/* Connections are counted whatever the measure, for `proffer status`: */

/* … payload of an established connection went inward, … */
static __always_inline void load_on_in(struct conn *c)
{
	busy_on_in(c);
}

/* … payload went outward, … */
static __always_inline void load_on_answer(struct conn *c)
{
	busy_on_out(c, true);
}

/* … the connection ended, … */
static __always_inline void load_on_end(struct conn *c)
{
	busy_on_out(c, false);
}

/* … an offer was accepted, … */
static __always_inline void load_on_accept(struct load *l, __u32 epoch)
{
	pending_add(l, epoch);
}

/* … which came to nothing, … */
static __always_inline void load_on_cancel(struct load *l, __u32 epoch)
{
	pending_remove(l, epoch);
}

/* … when its client finished the handshake, its datagram was answered, or its entry is
 * removed. */
static __always_inline void load_on_arrival(struct conn *c)
{
	busy_on_arrival(c);
}
