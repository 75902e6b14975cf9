/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* instances.h: the nodes, and the choice of an instance (server, core) for a new flow of a
 * service: in turn by weight, in a read of an alias table. At random by weight, chance alone would
 * load instances unevenly. The weights are user space's; it fills the table that the service does not use and then names it by one store. */
#pragma once
#include "edge/flows.h"
#include "edge/tuple.h"
#include "table/alias.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_SERVERS);
	__type(key, __u32);
	__type(value, struct edge_end);
} edge_nodes SEC(".maps");

/* The server numbers of nodes, by the address that their packets come from. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_EDGE_SERVERS);
	__type(key, struct in6_addr);
	__type(value, __u32);
} edge_senders SEC(".maps");

/* The addresses of this host: packets for them are its own. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct in6_addr);
	__type(value, __u32);
} edge_own SEC(".maps");

/* The services of prefixes: of the client network, or 0 for the addresses that functions give
 * flows, to which the world begins none. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_EDGE_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} edge_prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_SERVICES);
	__type(key, __u32);
	__type(value, struct edge_service);
} edge_services SEC(".maps");

/* The rows of alias tables: numbers of instances. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_EDGE_SERVICES * MAX_ROWS);
	__type(key, __u32);
	__type(value, __u64);
} edge_rows SEC(".maps");

/* The turns of services so far. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} edge_turns SEC(".maps");

/* Server, core and service of an instance, as in the VNI. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_INSTANCES);
	__type(key, __u32);
	__type(value, __u32);
} edge_instances SEC(".maps");

/* The numbers of instances, by server, core and service. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_INSTANCES);
	__type(key, __u32);
	__type(value, __u32);
} edge_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_INSTANCES);
	__type(key, __u32);
	__type(value, struct edge_count);
} edge_counts SEC(".maps");

static __always_inline struct edge_count *edge_count_of(__u64 word)
{
	__u32 instance = word >> EDGE_INSTANCE_SHIFT & (MAX_INSTANCES - 1);

	return bpf_map_lookup_elem(&edge_counts, &instance);
}

/* is_sampled: a packet of an instance and age is to be sampled, by the count of them. */
static __always_inline bool is_sampled(__u64 packets)
{
	return !(packets % EDGE_SAMPLED);
}

/* edge_count_packet counts a packet of a flow; true: it is to be sampled. */
static __always_inline bool edge_count_packet(struct edge_count *n, __u64 word)
{
	__u32 class = edge_age_class(edge_age(word, ticked_ns()));

	return class < EDGE_AGES && is_sampled(++n->packets[class]);
}

static __always_inline struct edge_end *edge_node(__u64 word)
{
	__u32 server = edge_server(word);

	return bpf_map_lookup_elem(&edge_nodes, &server);
}

/* edge_is_ready: packets can be sent to the flow's core. */
static __always_inline bool edge_is_ready(__u64 word)
{
	const struct edge_end *e = edge_node(word);

	return e && e->ready && edge_core(word) < e->cores;
}

/* A choice of an instance. */
struct edge_choice {
	struct edge_service table;
	__u32 service;
	__u32 random; /* 0: in turn */
	__u64 word;   /* 0: none that is ready */
};

/* edge_turn takes the next turn of a service; 1: it met an instance that is ready. */
static __always_inline long edge_turn(struct edge_choice *c)
{
	__u32 service = c->service, rows = c->table.rows, row, place, instance, *vni, *turns;
	__u64 *r, word;

	turns = bpf_map_lookup_elem(&edge_turns, &service);
	if (!turns || !rows)
		return 1;
	if (c->random) {
		row = alias_row(c->random, rows, &place);
		c->random += GOLDEN;
	} else {
		row = alias_turn(__sync_fetch_and_add(turns, 1), rows, &place);
	}
	row += c->table.first;
	r = bpf_map_lookup_elem(&edge_rows, &row);
	if (!r)
		return 1;
	instance = alias_in(READ_ONCE(*r), place);
	vni = bpf_map_lookup_elem(&edge_instances, &instance);
	if (!vni || !instance)
		return 1;
	word = *vni | (__u64)instance << EDGE_INSTANCE_SHIFT;
	if (!edge_is_ready(word))
		return 0;
	c->word = word;
	return 1;
}

/* edge_turn_again is the callback of bpf_loop. */
static long edge_turn_again(__u64 i, struct edge_choice *c)
{
	return edge_turn(c);
}

/* edge_choose returns the word of a new flow but for its beginning, or 0 if its service has no
 * instance that is ready. The turns of nodes that are down go to the next instance, until user
 * space has taken their weights. The same number but 0 chooses the same instance. */
static __always_inline __u64 edge_choose(__u32 service, __u32 random)
{
	struct edge_service *svc = bpf_map_lookup_elem(&edge_services, &service);
	struct edge_choice c = { .service = service, .random = random };

	if (!svc)
		return 0;
	*(__u64 *)&c.table = READ_ONCE(*(__u64 *)svc);
	if (c.table.rows && !edge_turn(&c))
		bpf_loop(2 * c.table.rows, edge_turn_again, &c, 0);
	return c.word;
}

/* edge_service_at returns the service of an address: 0 for a service that takes no new flows, -1 for an address
 * that is not the edge's. */
static __always_inline int edge_service_at(const struct in6_addr *addr)
{
	struct prefix key = { .bits = 128, .addr = *addr };
	__u32 *service = bpf_map_lookup_elem(&edge_prefixes, &key);

	return service ? (int)*service : -1;
}
