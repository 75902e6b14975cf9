/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* weighted.h: a server by the flow's digest, with a probability in proportion to its weight: ecmp,
 * wcmp, awcmp. The presumed owner of a flow without an entry is the server that a new flow would
 * have, so a flow that changes the LB is found while both LBs have the same weights. */
#pragma once
#include "lb/choose/seat.h"

static __always_inline __u64 choose_weighted(const struct packet *p, const struct service *svc,
					     bool begins)
{
	return in_seat(p, svc, deal_by_weight(svc->tally, p->hash));
}
