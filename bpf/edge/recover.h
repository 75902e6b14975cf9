/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* recover.h: a packet without an entry may be of a flow that another LB began, or this LB before a
 * restart. The LB asks the nodes for its owner, in the order of their numbers,
 * with the packet itself: the VNI has the number of the node that is asked, so the LB keeps nothing
 * meanwhile, and each node is asked once at most. */
#pragma once
#include "core/limit.h"
#include "edge/counters.h"
#include "edge/instances.h"
#include "edge/tunnel.h"

/* Packets that may begin a flow are asked about, too; set before loading. It is a question to all
 * nodes for each new flow. */
const volatile bool edge_recovers_all = false;

/* A search for a node. */
struct edge_walk {
	__u32 from;
	__u32 found;
};

/* find_ready is the callback of bpf_loop: 1 ends it. */
static long find_ready(__u64 i, struct edge_walk *w)
{
	__u32 server = w->from + (__u32)i;
	struct edge_end *e = bpf_map_lookup_elem(&edge_nodes, &server);

	if (!e || !e->ready)
		return 0;
	w->found = server;
	return 1;
}

/* ready_from returns the first node from a number on that is ready, or MAX_EDGE_SERVERS. */
static __always_inline __u32 ready_from(__u32 server)
{
	struct edge_walk w = { .from = server, .found = MAX_EDGE_SERVERS };

	if (server < MAX_EDGE_SERVERS)
		bpf_loop(MAX_EDGE_SERVERS - server, find_ready, &w, 0);
	return w.found;
}

/* may_begin: the packet may be the first of a flow. */
static __always_inline bool may_begin(const struct packet *p)
{
	return opens(p) || p->kind == KIND_UDP || p->kind == KIND_ECHO;
}

/* may_have_owner: a node may have the packet's flow. To an address that functions give to flows, no
 * SYN is of any. A datagram of a node that is gone may have got another instance by another LB. */
static __always_inline bool may_have_owner(const struct packet *p, int service)
{
	if (!may_begin(p))
		return true;
	if (opens(p))
		return service && edge_recovers_all;
	return !service || edge_recovers_all || edge_flow_of(p->hash);
}

/* may_ask takes a token of the service for a question: each node is asked once. */
static __always_inline bool may_ask(const struct packet *p, int service)
{
	if (p->kind == KIND_UDP || p->kind == KIND_ECHO)
		return spend(LIMIT_DATAGRAM, service);
	return spend(p->kind == KIND_TCP && p->payload ? LIMIT_QUESTION : LIMIT_STRAY, service);
}

static __always_inline bool fits_tunnel(const struct packet *p, const struct edge_end *e)
{
	return p->length + sizeof(struct ipv6hdr) + sizeof(struct edge_vxlan) <= e->mtu;
}
