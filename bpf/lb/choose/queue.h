/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* queue.h: of two random servers that with fewer requests in hand, as its agent reported them, and
 * the flows that this LB began there since, for a packet that begins a flow: gsq2. */
#pragma once
#include "lb/choose/seat.h"

static __always_inline __u64 choose_queue(const struct packet *p, const struct service *svc,
					  bool begins)
{
	return in_seat(p, svc, begins ? deal_queue(svc->tally, p->hash) : CHOSEN_NONE);
}
