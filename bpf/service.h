/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* service.h: the LB's services, their servers, and the table that gives each
 * flow its list of servers (6LB §III). A service's table is replaced whole: a
 * packet meets the old one or the new one. */
#pragma once
#include "parse.h"
#include "siphash.h"

#define MAX_SERVICES 1024
#define MAX_SERVERS 16384 /* numbers; those of past servers are kept for a while */

const volatile struct key candidate_key = {};

/* Twice the services: each VIP has a mark of its own (struct service_key). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * MAX_SERVICES);
	__type(key, struct service_key);
	__type(value, struct service);
} services SEC(".maps");

/* Keeps the layout of a bucket in the object's BTF, for Go. */
const volatile struct bucket no_bucket = {};

struct table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	/* Tables differ in size, and user space writes them through memory. */
	__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32)); /* no types: Linux 6.1 wants Go's to have them, too */
	__uint(value_size, sizeof(struct bucket));
};

/* Twice the services: all may get another slot at once (dataplane/slots.go, which
 * keeps one more for itself). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2 * MAX_SERVICES + 1);
	__type(key, __u32);
	__array(values, struct table);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVERS);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SERVERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be64);
	__type(value, __u32);
} server_by_locator SEC(".maps");

static __always_inline struct service *service_at(const struct in6_addr *vip, __be16 port_be,
						  __u8 protocol)
{
	struct service_key key = { .vip = *vip, .port_be = port_be, .protocol = protocol };

	return bpf_map_lookup_elem(&services, &key);
}

/* service_of returns the service that a packet is for, or about. */
static __always_inline struct service *service_of(const struct packet *p)
{
	return service_at(&p->t.vip, p->t.vip_port_be, p->t.protocol);
}

/* vip_at returns what marks an address as a VIP: the service that takes its
 * fragments, or one without buckets. */
static __always_inline struct service *vip_at(const struct in6_addr *a)
{
	return service_at(a, 0, 0);
}

/* server_number returns a server of today or of the near past, or NULL. */
static __always_inline struct server *server_number(__u32 i)
{
	struct server *s = bpf_map_lookup_elem(&servers, &i);

	return s && s->locator_be ? s : NULL;
}

/* bucket_of returns the servers of a flow. Services that take fragments are
 * hashed by addresses alone, so that a fragment finds the way of the whole. */
static __always_inline struct bucket *bucket_of(const struct service *svc, const struct tuple *flow)
{
	struct key key = { candidate_key.k0, candidate_key.k1 };
	struct tuple t = *flow;
	__u32 at = svc->table;
	void *table;

	if (svc->fragments == FRAGMENTS_HASH) {
		t.client_port_be = t.vip_port_be = 0;
		t.protocol = 0;
	}
	table = bpf_map_lookup_elem(&tables, &at);
	if (!table)
		return NULL;
	at = (siphash(&key, &t) >> 32) * svc->buckets >> 32; /* table.Table.Index */
	return bpf_map_lookup_elem(table, &at);
}
