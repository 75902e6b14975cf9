/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow.h: the agent's flows (6LB Table III): a bounded cache of the kernel's socket table,
 * and the LB to signal to, which the kernel does not know.
 *
 *   LISTEN (none)  ca, cf accepted      -> WAIT    each packet to the client in cs
 *   WAIT           as                   -> DIRECT  packets go straight to the client
 *   any            rs, and it is ours   -> WAIT    for the LB that sent it
 *   any            as of an LB that has another generation -> WAIT for that LB
 *   LISTEN         as, and it is ours   -> DIRECT  (the agent was restarted)
 *   WAIT           rj                   -> LISTEN  (another server accepted first)
 *   any            both sides closed, or idle -> LISTEN
 *
 * An entry is embryonic until the client sends a packet that a spoofed source cannot. */
#pragma once
#include "agent/counters.h"
#include "agent/insert.h"
#include "agent/load/load.h"
#include "core/siphash.h"
#include "packet/scratch.h"

#define EMBRYONIC_NS 60000000000ULL /* longer than SYN-ACKs are retransmitted (RFC 6298) */

/* Of an entry whose LB is not known (adopt.h). No LB names it, so the next packet of an LB is
 * decided by the kernel's socket, and its sender is then the LB to signal to. */
#define NO_GENERATION 0

/* The result of a search. */
struct conn_entry {
	struct conn *c;	      /* or NULL */
	struct conn *expired; /* an embryonic entry past its time */
	int at;		      /* where either is; negative: nowhere */
	bool embryonic;	      /* or no entry */
};

/* conn_find finds the packet's entry, and makes the packet's hash its digest. Most packets that
 * are `sought` have none. */
static __always_inline struct conn_entry conn_find(struct packet *p, __u64 now, bool sought)
{
	struct conn_entry e = { .at = -1, .embryonic = true };

	p->hash = digest(&p->t);
	if (sought && !conn_is_hinted(p->hash))
		return e;
	e.at = conn_find_slot(&p->t, p->hash, now);
	if (e.at < 0)
		return e;
	e.c = conn_at(p->hash, e.at);
	e.embryonic = !(e.at & AT_ESTABLISHED);
	if (e.c && e.embryonic && age_of(e.c, now) > EMBRYONIC_NS) {
		e.expired = e.c;
		e.c = NULL;
	}
	return e;
}

/* new_generation is the generation of the flow that the packet begins. UDP has no initial
 * sequence number; the time in 2^20 ns distinguishes the uses of a five-tuple, even over
 * a restart. */
static __always_inline __u16 new_generation(const struct packet *p, __u64 now)
{
	return generation_of(p->kind == KIND_UDP ? now >> 20 : p->seq);
}

/* conn_accept writes the entry of an accepted offer: WAIT, for the LB that sent it. An
 * earlier entry of the flow ends. */
static __always_inline bool conn_accept(const struct packet *p, const struct offering *o,
					const struct conn_entry *old, __be64 lb_be, __u64 now)
{
	struct load *l = load_at(o->index);
	struct scratch *scr = scratch();
	__u32 epoch = epoch_of(now);

	if (old->expired)
		load_on_arrival(old->expired);
	if (old->c) {
		load_on_arrival(old->c);
		load_on_end(old->c);
	}
	if (!l || !scr)
		return false;
	scr->entry = (struct conn){
		.seen = now >> SEEN_SHIFT,
		.lb_be = lb_be,
		.offering = o->index,
		.epoch = epoch,
		.next_in = p->seq + 1,
		.flags = CONN_PENDING,
		.generation = new_generation(p, now),
		.state = CONN_WAIT,
	};
	load_on_accept(l, epoch);
	if (conn_put(&p->t, p->hash, &scr->entry, old->at, 0) >= 0)
		return true;
	load_on_cancel(l, epoch);
	return false;
}

/* conn_establish makes an embryonic entry established. Returns NULL if another flow has
 * taken its slot. */
static __always_inline struct conn *conn_establish(const struct packet *p,
						   const struct conn_entry *e)
{
	int at = e->at;

	if (conn_change(p->hash, at, ESTABLISHED)) {
		count(AGENT_ESTABLISHED);
		return e->c;
	}
	at = conn_find_slot(&p->t, p->hash, seen_ns(e->c)); /* another CPU was faster? */
	return at >= 0 && at & AT_ESTABLISHED ? conn_at(p->hash, at) : NULL;
}

/* conn_adopt makes an entry of a flow that the kernel has and this table has not. */
static __always_inline struct conn *conn_adopt(const struct packet *p, const struct offering *o,
					       __be64 lb_be, __u16 generation, __u64 now, int at)
{
	struct scratch *scr = scratch();

	if (!scr)
		return NULL;
	scr->entry = (struct conn){
		.seen = now >> SEEN_SHIFT,
		.lb_be = lb_be,
		.offering = o->index,
		.next_in = p->seq,
		.generation = generation,
		.state = CONN_DIRECT,
	};
	at = conn_put(&p->t, p->hash, &scr->entry, at, ESTABLISHED);
	if (at >= 0)
		return conn_at(p->hash, at);
	count(AGENT_TABLE_FULL);
	return NULL;
}

/* signal_to_lb puts the flow into WAIT for this LB. */
static __always_inline void signal_to_lb(struct conn *c, __be64 lb_be)
{
	c->lb_be = lb_be;
	c->state = CONN_WAIT;
}

/* end_of is the sequence number after a packet's payload and FIN. */
static __always_inline __u32 end_of(const struct packet *p)
{
	return p->seq + !!(p->flags & TCP_SYN) + p->payload + !!(p->flags & TCP_FIN);
}

/* is_past is true of payload or a FIN past the last seen. */
static __always_inline bool is_past(const struct conn *c, const struct packet *p)
{
	return (p->payload || p->flags & TCP_FIN) && (__s32)(end_of(p) - c->next_in) > 0;
}

/* The sequence numbers that may be missing before a packet where no socket can be asked for
 * its window: more than a flight loses, and 1 in 4096 of all. */
#define MAX_GAP (1 << 20)

static __always_inline bool conn_closed(const struct conn *c)
{
	return (c->flags & CONN_CLOSED) == CONN_CLOSED || c->flags & CONN_DOUBTED;
}
