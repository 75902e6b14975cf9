/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* single.h: a server by consistent hashing (Maglev): the table's buckets have a single candidate
 * each. The flow's own packets make its entry (lb/client_flows.h), so no server needs an agent. */
#pragma once
#include "lb/choose/by_client.h"

static __always_inline __u64 choose_single(const struct packet *p, const struct service *svc)
{
	return bucket_at(svc, bucket_hash(p, svc));
}
