/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* service.h: the LB's services and their servers. */
#pragma once
#include "choose.h"
#include "parse.h"

#define MAX_SERVICES 64
#define MAX_SERVERS 4096

const volatile struct key candidate_key = {};

/* Twice the services: each VIP has a mark of its own (struct service_key). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_SERVICES);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* The members of every service, one after the other: indices into servers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, __u32);
} pool SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SERVERS);
	__type(key, __be64);
	__type(value, __u32);
} server_by_locator SEC(".maps");

static __always_inline const struct service *service_at(const struct in6_addr *vip, __be16 port_be,
							__u8 protocol)
{
	struct service_key key = { .vip = *vip, .port_be = port_be, .protocol = protocol };

	return bpf_map_lookup_elem(&services, &key);
}

static __always_inline bool is_vip(const struct in6_addr *a)
{
	return service_at(a, 0, 0);
}

static __always_inline const struct server *server_number(__u32 i)
{
	return bpf_map_lookup_elem(&servers, &i);
}

/* member returns the server that is number i of a service's pool. */
static __always_inline const struct server *member(const struct service *s, __u32 i, __u32 *number)
{
	__u32 at = s->pool + i;
	const __u32 *n = bpf_map_lookup_elem(&pool, &at);

	if (!n)
		return NULL;
	*number = *n;
	return server_number(*n);
}

static __always_inline __u64 candidate_hash(const struct tuple *t)
{
	struct key key = { candidate_key.k0, candidate_key.k1 };

	return siphash(&key, t);
}
