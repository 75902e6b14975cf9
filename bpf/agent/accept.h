/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* accept.h: whether an agent accepts an offer that it could pass on. Static: busy < c (SRLB
 * Algorithm 1). Dynamic: the same, and c moves by one at the end of a window whose share of
 * acceptances left ½ ± ε (6LB Algorithm 2; SRLB's printing resets its counters at every
 * offer, which cannot be meant).
 * Go's twin is policy.Acceptor. */
#pragma once
#include "core/types.h"

/* adapt ends a window. */
static __always_inline void adapt(const struct offering *o, struct load *l)
{
	__u64 share_ppm = l->accepted * 1000000ULL;
	__u64 low = (500000ULL - o->epsilon_ppm) * o->window;
	__u64 high = (500000ULL + o->epsilon_ppm) * o->window;

	if (share_ppm < low && l->threshold < o->workers)
		l->threshold++;
	else if (share_ppm > high && l->threshold > 0)
		l->threshold--;
	l->attempts = 0;
	l->accepted = 0;
}

/* accepts decides on one offer; the caller holds l->lock if acceptance is dynamic. */
static __always_inline bool accepts(const struct offering *o, struct load *l, __u32 busy)
{
	bool yes;

	if (o->acceptance == ACCEPT_ALWAYS)
		return true;
	if (o->acceptance == ACCEPT_DYNAMIC && ++l->attempts >= o->window)
		adapt(o, l);
	yes = busy < l->threshold;
	if (yes && o->acceptance == ACCEPT_DYNAMIC)
		l->accepted++;
	return yes;
}
