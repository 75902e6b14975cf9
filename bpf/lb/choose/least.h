/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* least.h: of all servers that with the least (occupancy + 1) / weight (HLB §IV-C), for a packet
 * that begins a flow; else the bucket of the flow's digest, as `single` has it, whose last
 * member's seat is known. User space writes the weights into the tally (lb/occupancy.h): alike (lsq),
 * configured (sed), or learned. */
#pragma once
#include "lb/choose/seat.h"

static __always_inline __u64 choose_least(const struct packet *p, const struct service *svc,
					  bool begins)
{
	return in_seat(p, svc, begins ? tally_choose(svc->tally, p->hash) : CHOSEN_NONE);
}
