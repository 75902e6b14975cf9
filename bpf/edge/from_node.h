/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* from_node.h: the LB takes word of its nodes alone, and learns from them the tuple of a flow after the
 * functions' change, and the owner of a flow that another LB began. */
#pragma once
#include "edge/counters.h"
#include "edge/instances.h"
#include "edge/recent.h"
#include "edge/tunnel.h"

/* When a packet came last from each node, in 2^25 ns: a node that answers no probe is down. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_SERVERS);
	__type(key, __u32);
	__type(value, __u64);
} edge_answered SEC(".maps");

enum {
	EDGE_ANSWERED_SHIFT = 25,
};

static __always_inline void edge_note_answer(__u32 server)
{
	__u64 *last = bpf_map_lookup_elem(&edge_answered, &server);
	__u64 now = ticked_ns() >> EDGE_ANSWERED_SHIFT;

	if (last && READ_ONCE(*last) != now)
		*last = now;
}

/* names_instance: the VNI names a core that the node has, and a service that is there. */
static __always_inline bool names_instance(__u32 vni)
{
	struct edge_end *e = edge_node(vni);
	__u32 service = edge_service_of(vni);
	struct edge_service *svc = bpf_map_lookup_elem(&edge_services, &service);

	return e && edge_core(vni) < e->cores && svc && svc->first;
}

/* stranger is the reason to drop a packet that no node of ours sent, or not as docs/design/edge-wire.md
 * has it, or COUNTERS. */
static __always_inline enum counter stranger(const struct edge_outer *o)
{
	__u32 server = edge_server(o->vni), *number;
	struct in6_addr from = o->from;

	number = bpf_map_lookup_elem(&edge_senders, &from);
	if (!number || *number != server)
		return EDGE_DROP_STRANGER;
	if (o->message == MESSAGE_NOT_MINE || o->message == MESSAGE_ALIVE ||
	    o->message == MESSAGE_UNBOUND)
		return o->vni == server << EDGE_SERVER_SHIFT ? COUNTERS : EDGE_DROP_IMPOSSIBLE_ID;
	if (!names_instance(o->vni))
		return EDGE_DROP_IMPOSSIBLE_ID;
	if (o->message == MESSAGE_OWNED)
		return o->vni & EDGE_UPDATE ? EDGE_DROP_IMPOSSIBLE_ID : COUNTERS;
	return o->message == MESSAGE_PACKET && o->vni & EDGE_UPDATE ? COUNTERS
								    : EDGE_DROP_NO_UPDATE;
}

static __always_inline bool same_instance(const struct edge_flow *f, __u64 word)
{
	return !((READ_ONCE(f->word) ^ word) & EDGE_INSTANCE);
}

/* edge_take_over gives an entry of a node that is gone, or that had no packet for a second, another
 * instance: it is of an earlier flow with this tuple, which another LB began again. */
static __always_inline bool edge_take_over(struct edge_flow *f, __u64 word)
{
	__u64 was = READ_ONCE(f->word);

	return (edge_silence(f) >= EDGE_OVER || !edge_is_ready(was)) && edge_set_word(f, was, word);
}

/* link_flows makes two entries partners, unless they are: a port may be another client's by now. */
static __always_inline void link_flows(struct edge_flow *before, __u64 hash_before,
				       struct edge_flow *after, __u64 hash_after)
{
	if (READ_ONCE(after->partner) != hash_before) {
		after->partner = hash_before;
		after->keepalives = 0;
	}
	if (READ_ONCE(before->partner) != hash_after)
		before->partner = hash_after;
}

/* insert_owned gives a flow without an entry the instance that a node names. */
static __always_inline enum counter insert_owned(const struct packet *p, __u32 instance)
{
	__u32 *number = bpf_map_lookup_elem(&edge_numbers, &instance);
	__u64 word;

	if (!number)
		return EDGE_DROP_IMPOSSIBLE_ID;
	if (!edge_is_ready(instance))
		return EDGE_DROP_NO_INSTANCE;
	word = instance | (__u64)*number << EDGE_INSTANCE_SHIFT | edge_begun(ticked_ns());
	return edge_insert(p, word, 0) ? EDGE_RECOVERED : EDGE_DROP_TABLE_FULL;
}

/* is_begun: a chain let a packet of the world pass that had no entry. */
static __always_inline bool is_begun(const struct packet *p, const struct edge_outer *o)
{
	return (o->way & WAYS) == WAYS && p->hash == o->flow;
}

/* learn_begun makes the entry of a flow that the world began. */
static __always_inline enum counter learn_begun(const struct packet *p, const struct edge_outer *o)
{
	enum counter reason = insert_owned(p, o->vni & EDGE_INSTANCE);
	struct edge_flow *f = edge_flow_of(p->hash);
	struct edge_count *n = f ? edge_count_of(READ_ONCE(f->word)) : NULL;

	if (reason != EDGE_RECOVERED)
		return reason;
	if (n)
		n->flows++;
	count(EDGE_FLOW_BEGUN);
	return EDGE_UPDATE_LEARNED;
}

/* learn gives the tuple after the change, p->hash, the instance of the tuple before. */
static __always_inline enum counter learn(const struct packet *p, const struct edge_outer *o)
{
	struct edge_flow *before = edge_flow_of(o->flow), *after;
	__u64 word;

	if (!before)
		return is_begun(p, o) ? learn_begun(p, o) : EDGE_DROP_UNKNOWN_FLOW;
	word = READ_ONCE(before->word);
	if ((word ^ o->vni) & EDGE_INSTANCE) /* another CPU's weights may have begun it elsewhere */
		return is_begun(p, o) ? EDGE_UPDATE_KNOWN : EDGE_DROP_WRONG_INSTANCE;
	edge_touch(before);
	if (p->hash == o->flow)
		return EDGE_UPDATE_KNOWN;
	after = edge_flow_of(p->hash);
	if (after) {
		if (!same_instance(after, word) && !edge_take_over(after, word))
			return EDGE_DROP_CONFLICT;
		link_flows(before, o->flow, after, p->hash);
		edge_touch(after);
		return EDGE_UPDATE_KNOWN;
	}
	after = edge_insert(p, word, o->flow);
	if (!after)
		return EDGE_DROP_TABLE_FULL;
	before->partner = p->hash;
	return same_instance(after, word) ? EDGE_UPDATE_LEARNED : EDGE_DROP_CONFLICT;
}

/* learn_owner gives the flow of p->hash the instance that owns it: a new entry, or that of a node
 * that is gone. */
static __always_inline enum counter learn_owner(const struct packet *p, const struct edge_outer *o)
{
	__u32 vni = o->vni, *number = bpf_map_lookup_elem(&edge_numbers, &vni);
	struct edge_flow *f = edge_flow_of(p->hash);
	__u64 word, was;

	if (!f)
		return insert_owned(p, vni);
	if (!number)
		return EDGE_DROP_IMPOSSIBLE_ID;
	if (!edge_is_ready(vni))
		return EDGE_DROP_NO_INSTANCE;
	word = vni | (__u64)*number << EDGE_INSTANCE_SHIFT;
	was = READ_ONCE(f->word);
	if (!edge_is_ready(was))
		edge_set_word(f, was, word | was >> EDGE_BEGUN_SHIFT << EDGE_BEGUN_SHIFT);
	return EDGE_RECOVERED;
}
