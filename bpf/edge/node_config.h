/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* node_config.h: the configuration of a node: its LBs, the client network, and the lengths of its chains. */
#pragma once
#include "edge/function.h"

/* The LBs, by the address that their packets come from. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_LBS);
	__type(key, struct in6_addr);
	__type(value, struct edge_end);
} node_lbs SEC(".maps");

/* The prefixes of the client network: outward packets are from these. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_EDGE_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix);
	__type(value, __u32);
} node_clients SEC(".maps");

/* The number of functions of each service; 0: it is not here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} node_chains SEC(".maps");

/* chain_of returns the number of functions of the packet's service here, or 0. */
static __always_inline __u32 chain_of(const struct edge_outer *o)
{
	__u32 service = edge_service_of(o->vni), *n;

	n = bpf_map_lookup_elem(&node_chains, &service);
	return n ? *n : 0;
}

static __always_inline struct edge_end *lb_of(const struct edge_outer *o)
{
	struct in6_addr from = o->from;

	return bpf_map_lookup_elem(&node_lbs, &from);
}

/* is_of_clients: the packet, as it came, is of the client network. */
static __always_inline bool is_of_clients(const struct packet *p)
{
	struct prefix key = { .bits = 128, .addr = p->t.client };

	return bpf_map_lookup_elem(&node_clients, &key);
}

/* enter_chain finds the chain of a packet, which the LB gave its direction. */
static __always_inline void enter_chain(struct node_state *s)
{
	s->length = chain_of(&s->outer);
	s->inward = !!(s->outer.way & WAY_INWARD);
	s->first = (edge_service_of(s->outer.vni) * 2 + s->inward) * CHAIN_PROGRAMS;
}
