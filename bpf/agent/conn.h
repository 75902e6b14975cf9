/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* conn.h: the agent's flows (6LB Table III): a bounded cache of the kernel's
 * socket table, with what the kernel does not know: whom to signal to.
 *
 *   LISTEN (none)  ca, cf accepted      -> WAIT    signals cs with each answer
 *   WAIT           as                   -> DIRECT  answers the client directly
 *   any            rs, and it is ours   -> WAIT    for the LB that asked
 *   any            as of an LB that has another generation -> WAIT for that LB
 *   LISTEN         as, and it is ours   -> DIRECT  (the agent was restarted)
 *   WAIT           rj                   -> LISTEN  (another server had it first)
 *   any            both sides closed, or idle -> LISTEN
 *
 * An opening is proved once the client goes on with what only it can know. */
#pragma once
#include "core/count.h"
#include "agent/load.h"
#include "agent/conns.h"

#define EMBRYONIC_NS 60000000000ULL /* longer than SYN-ACKs are sent again (RFC 6298) */

/* A flow's entry, or NULL, and whether its client has still to prove that it is there. */
struct entry {
	struct conn *c;
	struct conn *overdue; /* an opening whose time is over */
	int at;		      /* where either is; negative: nowhere */
	bool waiting;
};

/* conn_find makes the packet's hash its digest. */
static __always_inline struct entry conn_find(struct packet *p, __u64 now)
{
	struct entry e = { .waiting = true };

	p->hash = digest(&p->t);
	e.at = find_place(&p->t, p->hash, now);
	if (e.at < 0)
		return e;
	e.c = conn_at(p->hash, e.at);
	e.waiting = !(e.at & IS_PROVED);
	if (e.c && e.waiting && (__s64)(now - e.c->seen_ns) > (__s64)EMBRYONIC_NS) {
		e.overdue = e.c;
		e.c = NULL;
	}
	return e;
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

/* is_fresh tells whether a packet brings payload that was not there before: any
 * datagram does. */
static __always_inline bool is_fresh(struct conn *c, const struct packet *p)
{
	__u32 end = p->seq + !!(p->flags & TCP_SYN) + p->payload;
	bool fresh;

	if (p->kind == KIND_UDP)
		return p->payload;
	fresh = p->payload && (__s32)(end - c->next_in) > 0;
	if (p->flags & TCP_FIN)
		end++;
	if ((__s32)(end - c->next_in) > 0 && (p->payload || p->flags & TCP_FIN))
		c->next_in = end;
	return fresh;
}

/* asked: payload went inward. Only of a proved flow, which nothing removes uncounted. */
static __always_inline void asked(struct conn *c, const struct packet *p)
{
	struct load *l;

	if (!is_fresh(c, p) || !set(c, CONN_ASKING))
		return;
	l = load_number(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking, 1);
}

/* arrived: the client finished the handshake, its datagram has been answered, or
 * the flow is gone. */
static __always_inline void arrived(struct conn *c)
{
	struct load *l;

	if (!unset(c, CONN_PENDING))
		return;
	l = load_number(c->offering);
	if (l)
		arrive(l, c->epoch);
}

/* opening_generation is the generation of the flow that the packet opens. UDP has
 * no number of its own; the time in milliseconds (2^20 ns) tells the uses of one
 * five-tuple apart, even over a restart. */
static __always_inline __u16 opening_generation(const struct packet *p, __u64 now)
{
	return generation_of(p->kind == KIND_UDP ? now >> 20 : p->seq);
}

/* conn_accept notes an accepted offer: WAIT, for the LB that made it. What there
 * was of the flow is over. */
static __always_inline bool conn_accept(const struct packet *p, const struct offering *o,
					const struct entry *old, __be64 lb_be, __u64 now)
{
	struct conn fresh = {
		.seen_ns = now,
		.lb_be = lb_be,
		.offering = o->index,
		.epoch = epoch_of(now),
		.next_in = p->seq + 1,
		.flags = CONN_PENDING | (p->inserted ? CONN_INSERT : 0),
		.generation = opening_generation(p, now),
		.state = CONN_WAIT,
	};
	struct load *l = load_number(o->index);

	if (old->overdue)
		arrived(old->overdue);
	if (old->c) {
		arrived(old->c);
		answered(old->c);
	}
	if (!l)
		return false;
	expect(l, fresh.epoch);
	if (conn_put(&p->t, p->hash, &fresh, old->at, 0) >= 0)
		return true;
	arrive(l, fresh.epoch);
	return false;
}

/* conn_establish notes that the client of a flow is there. NULL: another flow has its
 * place by now. */
static __always_inline struct conn *conn_establish(const struct packet *p, const struct entry *e)
{
	int at = e->at;

	if (alter(p->hash, at, PROVED)) {
		count(AGENT_ESTABLISHED);
		return e->c;
	}
	at = find_place(&p->t, p->hash, e->c->seen_ns); /* another CPU was faster? */
	return at >= 0 && at & IS_PROVED ? conn_at(p->hash, at) : NULL;
}

/* conn_adopt notes a flow that the kernel has and this agent did not know. */
static __always_inline struct conn *conn_adopt(const struct packet *p, const struct offering *o,
					       __be64 lb_be, __u16 generation, __u64 now, int at)
{
	struct conn fresh = {
		.seen_ns = now,
		.lb_be = lb_be,
		.offering = o->index,
		.next_in = p->seq,
		.flags = p->inserted ? CONN_INSERT : 0,
		.generation = generation,
		.state = CONN_DIRECT,
	};

	at = conn_put(&p->t, p->hash, &fresh, at, PROVED);
	if (at >= 0)
		return conn_at(p->hash, at);
	count(AGENT_TABLE_FULL);
	return NULL;
}

/* await makes the flow's answers signal to an LB. */
static __always_inline void await(struct conn *c, __be64 lb_be, bool inserted)
{
	c->lb_be = lb_be;
	if (inserted)
		set(c, CONN_INSERT);
	else
		unset(c, CONN_INSERT);
	c->state = CONN_WAIT;
}

static __always_inline bool conn_over(const struct conn *c)
{
	return (c->flags & CONN_CLOSED) == CONN_CLOSED;
}

static __always_inline bool conn_expired(const struct conn *c, bool proved, const struct sweep *s)
{
	__u64 age = s->now_ns > c->seen_ns ? s->now_ns - c->seen_ns : 0;

	if (!proved)
		return age > EMBRYONIC_NS;
	return age > (conn_over(c) ? s->linger_ns : s->idle_ns);
}

/* sweep_set is the callback of bpf_loop. What goes was counted as load perhaps; then no
 * more. The entry is looked at again once nobody else can take it: the flow may have begun
 * anew meanwhile, within a unit of its date. */
static long sweep_set(__u64 i, struct sweep *s)
{
	__u32 at = s->from + i;
	struct conn_set *set = set_at(at);
	struct conn *c;
	__u64 was;

	if (!set)
		return 1;
	for (int k = 0; k < PLACES; k++) {
		was = READ_ONCE(set->mark[k]);
		c = &set->place[k].c;
		if (was >= TAKING || no_digest(was))
			continue;
		if (!conn_expired(c, was & PROVED, s)) {
			s->kept += was / PROVED & 1;
			continue;
		}
		stall();
		if (!compare_and_swap(&set->mark[k], was, was | TAKING))
			continue;
		if (!conn_expired(c, was & PROVED, s)) {
			__sync_fetch_and_xor(&set->mark[k], ~was & TAKING);
			continue;
		}
		arrived(c);
		answered(c);
		__sync_fetch_and_and(&set->mark[k], STRAYS);
		if (was & AWAY)
			uncount_stray(other_of(at, was));
		s->removed += was / PROVED & 1;
	}
	return 0;
}
