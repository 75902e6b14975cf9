/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* dynamic.h: as static, and c moves by one at the end of a window of offers if their
 * share of acceptances left ½ ± ε (6LB Algorithm 2; SRLB's printing resets its counters at every
 * offer, which cannot be meant). */
#pragma once
#include "agent/accept/static.h"

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

/* accept_dynamic counts an offer only if the load is known. The lock keeps a window's
 * counters and its threshold together. */
static __always_inline enum willing accept_dynamic(const struct offering *o, struct load *l,
						   __u64 load)
{
	enum willing so;

	if (load == NO_LOAD)
		return LOAD_UNKNOWN;
	bpf_spin_lock(&l->lock);
	if (++l->attempts >= o->window)
		adapt(o, l);
	so = accept_static(l, load);
	if (so == WILLING)
		l->accepted++;
	bpf_spin_unlock(&l->lock);
	return so;
}
