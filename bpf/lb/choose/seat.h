/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* seat.h: the bucket of a server that was chosen by its seat. */
#pragma once
#include "lb/choose/by_client.h"
#include "lb/weighted_choice.h"

/* in_seat returns the bucket of a chosen server alone; if there is none, that of the flow's digest. */
static __always_inline __u64 in_seat(const struct packet *p, const struct service *svc, int chosen)
{
	if (!svc->tally || chosen < 0)
		return bucket_at(svc, bucket_hash(p, svc));
	return (chosen & WORD_SERVER) | (1ULL + (chosen >> CHOSEN_SEAT_SHIFT)) << SEAT_SHIFT |
	       1ULL << CHOICES_SHIFT | 1ULL << MEMBERS_SHIFT;
}
