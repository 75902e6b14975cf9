/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* evict.h: the established entries that give way to a new flow, where its two lines have no free
 * slot and no embryonic entry. None gives way that was seen within RECENT_NS. An idle TCP flow of
 * sockets out of sight gives way last, after `idle`: its entry is the only evidence of its owner. */
#pragma once
#include "agent/complete.h"
#include "agent/flow_table.h"
#include "agent/counters.h"
#include "agent/load/load.h"
#include "table/ages.h"

#define RECENT_NS 4000000000ULL
#define HALF_CLOSED_NS 30000000000ULL
#define IDLE_NS 60000000000ULL
#define TALKS 3 /* datagrams inward that make a UDP flow more than brief */

/* How readily an entry gives way. */
enum way {
	WAY_STAYS,
	WAY_LOST,
	WAY_IDLE,
	WAY_BRIEF,
	WAY_HALF_CLOSED,
	WAY_OVER,
};

/* may_recover is true of a flow that the agent finds again without its entry, or that loses
 * little: a UDP flow is offered again. */
static __always_inline bool may_recover(const struct conn *c)
{
	const struct offering *o = offering_at(&c->vip, c->vip_port_be, c->protocol);

	return o && (o->owner != OWNER_TABLE || c->protocol == IPPROTO_UDP);
}

/* conn_way returns how readily an established entry gives way: enum way. Functions here are
 * noinline so that the verifier looks at each once. */
__noinline int conn_way(const struct conn *c, __u64 now)
{
	__u32 closed;
	__u64 age;

	if (!c)
		return WAY_STAYS;
	age = age_of(c, now);
	if (age < RECENT_NS)
		return WAY_STAYS;
	closed = c->flags & CONN_CLOSED;
	if (closed == CONN_CLOSED)
		return WAY_OVER;
	if (closed && age >= HALF_CLOSED_NS)
		return WAY_HALF_CLOSED;
	if (c->protocol == IPPROTO_UDP && c->next_in < TALKS)
		return WAY_BRIEF;
	if (age < IDLE_NS && age <= idle_ns)
		return WAY_STAYS;
	if (may_recover(c))
		return WAY_IDLE;
	return age > idle_ns ? WAY_LOST : WAY_STAYS;
}

/* conn_readiest returns the way of the entry in a line that gives way first, and in the last
 * three bits its slot. */
__noinline int conn_readiest(__u32 line, __u64 now)
{
	struct conn_line *s = conn_line_at(line);
	__u64 rank = 0, was;

	for (__u32 k = 0; s && k < SLOTS; k++) {
		was = READ_ONCE(s->fingerprint[k]);
		if (was < CLAIMED && was & ESTABLISHED)
			rank = larger_of(rank, (__u64)conn_way(&s->slot[k], now) * SLOTS | k);
	}
	return rank;
}

/* conn_evict removes an entry that still gives way; the load that it counted for is taken
 * back. */
__noinline bool conn_evict(__u32 line, __u32 i, __u64 now)
{
	struct conn_line *s = conn_line_at(line);
	struct conn *c;
	__u64 was;

	if (!s)
		return false;
	i &= SLOTS - 1;
	c = &s->slot[i];
	was = READ_ONCE(s->fingerprint[i]);
	if (c->protocol == IPPROTO_TCP && (c->flags & CONN_CLOSED) != CONN_CLOSED)
		conns_may_lack(); /* before: no search finds an entry while it is claimed */
	if (was >= CLAIMED || !(was & ESTABLISHED) || is_of_now(was, now) || !conn_way(c, now))
		return false;
	stall();
	if (!compare_and_swap(&s->fingerprint[i], was, was | CLAIMED))
		return false;
	stall();
	if (!conn_way(c, now)) { /* the flow was seen in between */
		__sync_fetch_and_xor(&s->fingerprint[i], ~was & CLAIMED);
		return false;
	}
	load_on_arrival(c);
	load_on_end(c);
	conn_free(line, s, i, was);
	count(AGENT_EVICTED);
	return true;
}

/* conn_make_room frees a slot in a flow's two lines. Returns where, or a negative number. */
__noinline int conn_make_room(__u64 hash, __u64 now)
{
	__u32 primary = conn_primary(hash);
	__u32 alternate = conn_alternate(primary, conn_fingerprint(hash));
	__u32 first = conn_readiest(primary, now), second = conn_readiest(alternate, now);

	if (first / SLOTS >= second / SLOTS && first >= SLOTS)
		return conn_evict(primary, first, now) ? first & (SLOTS - 1) : -1;
	if (second < SLOTS)
		return -1;
	return conn_evict(alternate, second, now) ? (second & (SLOTS - 1)) | AT_ALTERNATE : -1;
}
