/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* conn.h: the agent's flows (6LB Table III): a bounded cache of the kernel's
 * socket table, with what the kernel does not know: whom to signal to.
 *
 *   LISTEN (none)  ca, cf accepted      -> WAIT    signals cs with each answer
 *   WAIT           as                   -> DIRECT  answers the client directly
 *   any            rs, and it is ours   -> WAIT    for the LB that asked
 *   LISTEN         as, and it is ours   -> DIRECT  (the agent was restarted)
 *   any            both sides closed, or idle -> LISTEN */
#pragma once
#include "load.h"
#include "srv6.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct tuple);
	__type(value, struct conn);
} conns SEC(".maps");

static __always_inline struct conn *conn_find(const struct tuple *t)
{
	return bpf_map_lookup_elem(&conns, t);
}

/* set and unset change one flag and tell whether it was otherwise before, so
 * that a counter beside it moves exactly once however many CPUs see the cause. */
static __always_inline bool set(struct conn *c, __u32 flag)
{
	return !(__sync_fetch_and_or(&c->flags, flag) & flag);
}

static __always_inline bool unset(struct conn *c, __u32 flag)
{
	return c->flags & flag && __sync_fetch_and_and(&c->flags, ~flag) & flag;
}

/* answered: the last payload went outward, or the connection ended. */
static __always_inline void answered(struct conn *c)
{
	struct load *l;

	if (!unset(c, CONN_ASKING))
		return;
	l = load_number(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking, -1);
}

/* asked: payload went inward that was not there before. */
static __always_inline void asked(struct conn *c, const struct segment *s)
{
	__u32 end = bpf_ntohl(s->tcp->seq) + s->tcp->syn + s->payload;
	bool fresh = s->payload && (__s32)(end - c->next_in) > 0;
	struct load *l;

	end += s->tcp->fin;
	if ((__s32)(end - c->next_in) > 0 && (s->payload || s->tcp->fin))
		c->next_in = end;
	if (!fresh || !set(c, CONN_ASKING))
		return;
	l = load_number(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking, 1);
}

/* arrived: the client finished the handshake, or the connection is gone. */
static __always_inline void arrived(struct conn *c)
{
	struct load *l;

	if (!unset(c, CONN_PENDING))
		return;
	l = load_number(c->offering);
	if (l)
		load_arrive(l, c->epoch);
}

/* conn_accept notes an accepted offer: WAIT, for the LB that made it. */
static __always_inline bool conn_accept(const struct tuple *t, const struct segment *s,
					const struct offering *o, const struct sr *sr, __u64 now)
{
	struct conn fresh = {
		.seen_ns = now,
		.lb_be = sr->sender_be,
		.offering = o->index,
		.epoch = epoch_of(now),
		.next_in = bpf_ntohl(s->tcp->seq) + 1,
		.flags = CONN_PENDING,
		.generation = generation_of(bpf_ntohl(s->tcp->seq)),
		.state = CONN_WAIT,
	};
	struct conn *old = conn_find(t);
	struct load *l = load_number(o->index);

	if (old) {
		answered(old);
		arrived(old);
	}
	if (!l || bpf_map_update_elem(&conns, t, &fresh, BPF_ANY))
		return false;
	load_expect(l, fresh.epoch);
	return true;
}

/* conn_adopt notes a flow that the kernel has and this agent did not know. */
static __always_inline struct conn *conn_adopt(const struct tuple *t, const struct segment *s,
					       const struct offering *o, const struct sr *sr,
					       __u16 generation, enum conn_state state,
					       __u64 now)
{
	struct conn fresh = {
		.seen_ns = now,
		.lb_be = sr->sender_be,
		.offering = o->index,
		.next_in = bpf_ntohl(s->tcp->seq),
		.generation = generation,
		.state = state,
	};

	bpf_map_update_elem(&conns, t, &fresh, BPF_ANY);
	return conn_find(t);
}

static __always_inline bool conn_over(const struct conn *c)
{
	return (c->flags & CONN_CLOSED) == CONN_CLOSED;
}

struct bpf_map;

/* sweep_conn is the callback of bpf_for_each_map_elem. What goes was counted
 * as load perhaps; then no more. */
static long sweep_conn(struct bpf_map *map, struct tuple *t, struct conn *c, struct sweep *s)
{
	__u64 age = s->now_ns > c->seen_ns ? s->now_ns - c->seen_ns : 0;
	__u64 limit = conn_over(c) ? s->linger_ns : c->flags & CONN_PENDING ? s->embryonic_ns : s->idle_ns;

	if (age <= limit) {
		s->kept++;
		return 0;
	}
	answered(c);
	bpf_map_delete_elem(map, t);
	s->removed++;
	return 0;
}
