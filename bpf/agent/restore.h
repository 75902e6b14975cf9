/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* restore.h: the entries of an earlier agent's table of another size or layout. An entry has its whole
 * flow, so each can be added here. User space hands that table over line by line
 * (dataplane/agent/restore.go): just before these programs take the packets, and once more when the
 * earlier programs take none.
 *
 *   entry here   entry of before
 *   -            there            -> added here
 *   there        seen later       -> as of before: an earlier program had the flow's last packet
 *   there        seen earlier     -> as it is
 *
 * A flow that began after the first walk passed its line comes by the second walk. Where only the table
 * shows the owner, a packet without an entry is dropped until then. */
#pragma once
#include "agent/clock.h"
#include "agent/ownership.h"

/* Until when flows are restored, or 0. It ends by itself, as the daemon may die meanwhile. */
volatile __u64 restoring_until_ns SEC(".data.restoring") = 0;

/* await_restored decides again on a packet of a flow that this server seems not to have. A function of
 * its own, as it is rare. */
__noinline int await_restored(const struct offering *o, struct decision *d)
{
	struct scratch *scr = scratch();
	const struct request r = { .p = scr ? &scr->packet : NULL, .o = o };

	if (!scr || !o || !d || now_ns() >= restoring_until_ns || !owned_by_table(&r))
		return 0;
	switch (d->why) {
	case AGENT_GIVE_BACK_NOT_MINE:
	case AGENT_PASS_ON_NOT_MINE:
	case AGENT_UNOWNED:
	case AGENT_DROP_UNOWNED:
		*d = decided(ACT_DROP, AGENT_DROP_RESTORING);
	default:
		return 0;
	}
}

/* The entry that is restored. User space runs the program once at a time. */
struct restored {
	struct tuple t;
	struct conn c; /* without its flow */
	__u64 hash;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct restored);
} restoring SEC(".maps");

/* restore_later makes an entry here, which is `at`, that of before, if its flow was seen later there. */
static __always_inline int restore_later(struct restored *r, int at, __u64 established)
{
	const struct conn *here = conn_at(r->hash, at);

	if (established && !(at & AT_ESTABLISHED))
		conn_change(r->hash, at, ESTABLISHED);
	if (here && (__s32)(r->c.seen - here->seen) > 0)
		conn_put(&r->t, r->hash, &r->c, at, established);
	return 0;
}

/* restore_entry adds the entry of before. Returns 1 if it was established and there is no room. */
__noinline int restore_entry(__u64 established)
{
	__u32 zero = 0;
	struct restored *r = bpf_map_lookup_elem(&restoring, &zero);
	const struct offering *o;
	int at;

	if (!r)
		return 0;
	o = offering_at(&r->t.vip, r->t.vip_port_be, r->t.protocol);
	if (!o)
		return 0;
	r->c.offering = o->index;
	r->hash = digest(&r->t);
	at = conn_find_slot(&r->t, r->hash, seen_ns(&r->c));
	if (at >= 0)
		return restore_later(r, at, established);
	at = conn_slot_for(r->hash, seen_ns(&r->c));
	if (at >= 0)
		at = conn_put(&r->t, r->hash, &r->c, at, established);
	return at < 0 && established;
}

/* take_apart copies an entry: its flow, and the rest. */
static __always_inline void take_apart(struct restored *r, const struct conn *c)
{
	const __u64 *from = (const void *)c;
	__u64 *flow = (void *)&r->t, *rest = (void *)&r->c;
	int i;

	for (i = 0; i < TUPLE_PAIRS - 1; i++) {
		flow[i] = from[i];
		rest[i] = 0;
	}
	flow[i] = from[i] << NO_FLOW_BITS >> NO_FLOW_BITS;
	rest[i] = from[i] ^ flow[i];
	while (++i < (int)sizeof(*c) / 8)
		rest[i] = from[i];
}

/* restore_conns adds the entries of a line, which is its frame. Returns how many established flows found
 * no room. */
SEC("xdp")
int restore_conns(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct restored *r = bpf_map_lookup_elem(&restoring, &zero);
	int lost = 0;

	if (!r)
		return -1;
	for (int i = 0; i < SLOTS; i++) {
		struct cursor c = frame_at(ctx, 0);
		const struct conn_line *line = take(&c, sizeof(*line));
		__u64 was;

		if (!line)
			return -1;
		was = line->fingerprint[i];
		if (was >= CLAIMED || no_digest(was))
			continue;
		take_apart(r, &line->slot[i]);
		lost += restore_entry(was & ESTABLISHED);
	}
	return lost;
}
