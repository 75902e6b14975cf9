/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow.h: the LB's table of flows (6LB Table II): which server took each.
 *
 *   (none)    cs       -> EMBRYONIC  a server took it
 *   EMBRYONIC client's -> STEER      first packet after the handshake
 *   any       rms, FIN -> closed     removed `linger` after both sides closed
 *   any       idle     -> (none)
 *
 * Bounded and never evicting: when it is full a new flow has no entry and each
 * of its packets finds its server by recoverStickiness. */
#pragma once
#include "clock.h"
#include "parse.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct tuple);
	__type(value, struct flow);
} flows SEC(".maps");

#define TOUCH_NS 100000000ULL /* do not dirty a line for less */

static __always_inline struct flow *flow_find(const struct tuple *t)
{
	return bpf_map_lookup_elem(&flows, t);
}

static __always_inline void flow_touch(struct flow *f, __u64 now)
{
	if (now - f->seen_ns >= TOUCH_NS)
		f->seen_ns = now;
}

static __always_inline void flow_close(struct flow *f, __u32 who)
{
	if ((f->closed & who) != who)
		__sync_fetch_and_or(&f->closed, who);
}

enum created {
	CREATED = 0,
	CREATED_AGAIN, /* the same server said it before */
	CONFLICT,      /* another server took this very connection first */
	TABLE_FULL,
};

/* flow_create notes that a server took the flow. A new generation replaces an
 * old connection of the same five-tuple; within one the first server stays. */
static __always_inline enum created flow_create(const struct tuple *t, __u32 server,
						__u16 generation, __u64 now)
{
	struct flow fresh = {
		.seen_ns = now,
		.server = server,
		.generation = generation,
		.state = FLOW_EMBRYONIC,
	};
	struct flow *f = flow_find(t);

	if (f && f->generation == generation) {
		flow_touch(f, now);
		return f->server == server ? CREATED_AGAIN : CONFLICT;
	}
	return bpf_map_update_elem(&flows, t, &fresh, BPF_ANY) ? TABLE_FULL : CREATED;
}

static __always_inline bool flow_over(const struct flow *f)
{
	__u32 both = CLOSED_CLIENT | CLOSED_SERVER;

	return f->closed & CLOSED_RESET || (f->closed & both) == both;
}

/* flow_stale tells whether an entry's time has run out. */
static __always_inline bool flow_stale(const struct flow *f, const struct sweep *s)
{
	__u64 age = s->now_ns > f->seen_ns ? s->now_ns - f->seen_ns : 0;

	if (flow_over(f))
		return age > s->linger_ns;
	return age > (f->state == FLOW_EMBRYONIC ? s->embryonic_ns : s->idle_ns);
}

struct bpf_map;

/* sweep_flow is the callback of bpf_for_each_map_elem. */
static long sweep_flow(struct bpf_map *map, struct tuple *t, struct flow *f, struct sweep *s)
{
	if (!flow_stale(f, s)) {
		s->kept++;
		return 0;
	}
	bpf_map_delete_elem(map, t);
	s->removed++;
	return 0;
}
