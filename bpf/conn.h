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
 * What the client has not yet proved to have sent is kept apart, where only its
 * like can displace it: no flood of openings costs an established flow its place. */
#pragma once
#include "count.h"
#include "load.h"
#include "waits.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set before loading */
	__type(key, struct tuple);
	__type(value, struct conn);
} conns SEC(".maps");

#define EMBRYONIC_NS 60000000000ULL /* longer than SYN-ACKs are sent again (RFC 6298) */

/* A flow's entry, or NULL, and whether it is one of waits; then the packet's hash
 * is the digest. */
struct entry {
	struct conn *c;
	struct conn *overdue; /* one of waits whose time is over */
	bool waiting;
};

static __always_inline struct entry conn_find(struct packet *p, __u64 now)
{
	struct entry e = { .c = bpf_map_lookup_elem(&conns, &p->t) };

	if (e.c)
		return e;
	p->hash = digest(&p->t);
	e.c = wait_find(&p->t, p->hash, now);
	e.waiting = true;
	if (e.c && (__s64)(now - e.c->seen_ns) > (__s64)EMBRYONIC_NS) {
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

/* asked: payload went inward. Only in conns, which nothing leaves uncounted. */
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
	if (old->c && old->waiting)
		arrived(old->c);
	if (!old->waiting) {
		answered(old->c);
		bpf_map_delete_elem(&conns, &p->t);
	}
	if (!l)
		return false;
	expect(l, fresh.epoch);
	if (wait_put(&p->t, old->waiting ? p->hash : digest(&p->t), &fresh))
		return true;
	arrive(l, fresh.epoch);
	return false;
}

/* conn_establish moves an entry to conns. NULL: there is no room, and it stays. */
static __always_inline struct conn *conn_establish(const struct packet *p, struct conn *waiting)
{
	struct conn *c;

	bpf_map_update_elem(&conns, &p->t, waiting, BPF_NOEXIST); /* another CPU may be first */
	c = bpf_map_lookup_elem(&conns, &p->t);
	if (!c) {
		count(AGENT_TABLE_FULL);
		return NULL;
	}
	wait_remove(p->hash);
	count(AGENT_ESTABLISHED);
	return c;
}

/* conn_adopt notes a flow that the kernel has and this agent did not know. */
static __always_inline struct conn *conn_adopt(const struct packet *p, const struct offering *o,
					       __be64 lb_be, __u16 generation, __u64 now)
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
	struct conn *c;

	bpf_map_update_elem(&conns, &p->t, &fresh, BPF_NOEXIST);
	c = bpf_map_lookup_elem(&conns, &p->t);
	if (!c)
		count(AGENT_TABLE_FULL);
	return c;
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

static __always_inline bool conn_expired(const struct conn *c, const struct sweep *s)
{
	__u64 age = s->now_ns > c->seen_ns ? s->now_ns - c->seen_ns : 0;

	return age > (conn_over(c) ? s->linger_ns : s->idle_ns);
}

/* The sweep's argument and answer; the daemon sweeps once at a time. */
struct sweep sweeping SEC(".data.sweep");

struct bpf_iter_meta;
struct bpf_map;

struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	struct tuple *key;
	struct conn *value;
} KERNEL;

/* sweep_conns looks at one entry of conns, and removes it if its time has run out.
 * The kernel runs it for each while the daemon reads, and packets come in between:
 * they would not, if one run went over all. What goes was counted as load perhaps;
 * then no more. */
SEC("iter/bpf_map_elem")
int sweep_conns(struct bpf_iter__bpf_map_elem *ctx)
{
	struct tuple *t = ctx->key, key;
	struct conn *c = ctx->value;

	if (!t || !c)
		return 0;
	if (!conn_expired(c, &sweeping)) {
		sweeping.kept++;
		return 0;
	}
	key = *t; /* what the iterator shows can be no map's key */
	c = bpf_map_lookup_elem(&conns, &key);
	if (!c || !conn_expired(c, &sweeping))
		return 0;
	answered(c);
	bpf_map_delete_elem(&conns, &key);
	sweeping.removed++;
	return 0;
}
