/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* static.h: an offer is accepted while the load is below the threshold c (SRLB Algorithm
 * 1). */
#pragma once
#include "agent/accept/willing.h"

static __always_inline enum willing accept_static(const struct load *l, __u64 load)
{
	if (load == NO_LOAD)
		return LOAD_UNKNOWN;
	return load < l->threshold ? WILLING : TOO_BUSY;
}
