/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* work.h: the load measure `work`: the requests that the service's processes have in hand
 * or before them, as work/works.h counts them. */
#pragma once
#include "agent/listener.h"
#include "agent/load/loads.h"
#include "work/works.h"

static __always_inline __u64 work_load(const struct offering *o, const struct listener *here,
				       __u64 now)
{
	const struct work *w = work_at(o->index);

	if (!w)
		return NO_LOAD;
	return larger(here->queue, work_of(w, WORK_EARLY)) + work_of(w, WORK_UNREAD) +
	       work_of(w, WORK_RUN) + larger(work_of(w, WORK_BLOCKED), out_of(w, now));
}
