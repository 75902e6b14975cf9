/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* two.h: of two random servers that with the lesser (occupancy + 1) / weight (the power of two
 * choices), for a packet that begins a flow: lsq2, sed2, learned2. */
#pragma once
#include "lb/choose/seat.h"

static __always_inline __u64 choose_two(const struct packet *p, const struct service *svc,
					bool begins)
{
	return in_seat(p, svc, begins ? deal_two(svc->tally, p->hash) : CHOSEN_NONE);
}
