/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* hunt.h: the candidates by consistent hashing or at random (6LB §III, SRLB): the
 * bucket of the flow's digest in a table that user space computed. All LBs have the same
 * table, so each finds the same candidates. */
#pragma once
#include "lb/choose/by_client.h"

static __always_inline __u64 choose_hunt(const struct packet *p, const struct service *svc)
{
	return bucket_at(svc, bucket_hash(p, svc));
}
