/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* turn.h: servers in turn, by weight, for a packet that begins a flow: rr, wrr-feedback. */
#pragma once
#include "lb/choose/seat.h"

static __always_inline __u64 choose_in_turn(const struct packet *p, const struct service *svc,
					    bool begins)
{
	return in_seat(p, svc, begins ? deal_in_turn(svc->tally) : CHOSEN_NONE);
}
