/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow.h: the LB's tables of flows (6LB Table II): which server took each.
 *
 *   (none)     cs of a SYN-ACK       -> embryo
 *   (none)     cs of anything else   -> flow    recovered, the kernel vouches
 *   embryo     the ACK it expects    -> flow
 *   flow       rms, FIN              -> closed  removed `linger` after both sides
 *   flow       nm, idle              -> (none)
 *
 * Flows are bounded and never evicted: when the table is full a new one has no
 * entry and each of its packets finds its server by recoverStickiness. Embryos
 * live apart and make room for each other, the least recently used first: a
 * flood of SYNs displaces nothing but itself. */
#pragma once
#include "clock.h"
#include "parse.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct tuple);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct tuple);
	__type(value, struct embryo);
} embryos SEC(".maps");

#define TOUCH_NS 100000000ULL /* do not dirty a line for less */

/* How long an embryo may wait: a SYN-ACK is retransmitted after 1, 3 and 7 s
 * (RFC 6298 §5); later the flow is recovered. */
#define EMBRYONIC_NS 10000000000ULL

static __always_inline struct flow *flow_find(const struct tuple *t)
{
	return bpf_map_lookup_elem(&flows, t);
}

static __always_inline struct embryo *embryo_find(const struct tuple *t)
{
	struct embryo *e = bpf_map_lookup_elem(&embryos, t);

	return e && now_ns() - e->seen_ns < EMBRYONIC_NS ? e : NULL;
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

static __always_inline bool flow_over(const struct flow *f)
{
	__u32 both = CLOSED_CLIENT | CLOSED_SERVER;

	return f->closed & CLOSED_RESET || (f->closed & both) == both;
}

/* flow_write makes or replaces an entry. False: the table is full. */
static __always_inline bool flow_write(const struct tuple *t, __u16 server, __u16 generation)
{
	struct flow fresh = {
		.seen_ns = now_ns(),
		.server = server,
		.generation = generation,
		.announced = generation,
	};

	return !bpf_map_update_elem(&flows, t, &fresh, BPF_ANY);
}

static __always_inline void embryo_write(const struct packet *p, __u16 server, __u16 generation)
{
	struct embryo fresh = {
		.seen_ns = now_ns(),
		.expects = p->seq + 1,
		.server = server,
		.generation = generation,
	};

	bpf_map_update_elem(&embryos, &p->t, &fresh, BPF_ANY);
}

/* flow_stale tells whether an entry's time has run out. */
static __always_inline bool flow_stale(const struct flow *f, const struct sweep *s)
{
	__u64 age = s->now_ns > f->seen_ns ? s->now_ns - f->seen_ns : 0;

	return age > (flow_over(f) ? s->linger_ns : s->idle_ns);
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
