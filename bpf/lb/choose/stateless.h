/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* stateless.h: a server by consistent hashing for each packet, without entries: a flow
 * follows each change of its bucket, which resets it. */
#pragma once
#include "lb/choose/by_client.h"

/* hash_of_addresses covers the fields that a fragment and the whole packet have in common. */
__noinline __u64 hash_of_addresses(const struct packet *p)
{
	struct tuple t = {};

	if (!p)
		return 0;
	t.client = p->t.client;
	t.vip = p->t.vip;
	return digest(&t);
}

/* A service that takes fragments is hashed by addresses alone, so that a fragment goes
 * where the whole packet would. */
static __always_inline __u64 stateless_hash(const struct packet *p, const struct service *svc)
{
	return svc->fragments == FRAGMENTS_HASH ? hash_of_addresses(p) : bucket_hash(p, svc);
}

static __always_inline __u64 choose_stateless(const struct packet *p, const struct service *svc)
{
	return bucket_at(svc, stateless_hash(p, svc));
}
