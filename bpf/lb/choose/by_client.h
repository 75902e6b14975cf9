/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* by_client.h: the hash that chooses a flow's bucket: its digest, or with `affinity: client` that of its client
 * and service alone, so that all flows of a client have the same bucket. */
#pragma once
#include "lb/service.h"

/* hash_of_client is a function of its own, as few services have affinity. */
__noinline __u64 hash_of_client(const struct packet *p)
{
	struct tuple t = {};

	if (!p)
		return 0;
	t = p->t;
	t.client_port_be = 0;
	return digest(&t);
}

static __always_inline __u64 bucket_hash(const struct packet *p, const struct service *svc)
{
	return svc->affinity ? hash_of_client(p) : p->hash;
}
