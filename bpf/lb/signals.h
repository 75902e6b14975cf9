/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* signals.h: the signals of servers (6LB Table II) and the changes they make. A change is decided
 * on a single word and made by a compare-and-swap; if another CPU changed the word first, it is
 * decided again. */
#pragma once
#include "lb/counters.h"
#include "lb/flow.h"
#include "lb/insert.h"
#include "packet/scratch.h"

#define TRY_AGAIN COUNTERS /* another CPU changed the entry since the decision */

/* Time in which a server that lives answers a SYN for its flow: it takes it, releases the flow or
 * reports it alive. A tick more than a second, as the first is not whole. */
#define ANSWER_TICKS (1000000000ULL / (1ULL << SEEN_SHIFT) + 2)

/* replaces: a server may take over an entry of another generation if the old connection is
 * over, and no SYN of its client came since; if it is the same server; or if the entry's server was asked
 * about a SYN of that generation and answered nothing. Any other signal is a late duplicate, or a lie. */
static __always_inline bool replaces(__u64 hash, __u64 flow, __u32 server, __u16 generation)
{
	return (is_over(flow) && !(flow & WORD_BRIEF)) || server_in_word(flow) == server ||
	       (announced(flow) == generation && flow_age(hash, flow) >= ANSWER_TICKS);
}

/* store_word replaces the word that flow_find returned, or adds the entry if that was 0. */
static __always_inline enum counter store_word(const struct packet *p, __u64 was, __u64 word,
					       enum counter reason)
{
	if (was)
		return flow_change(p->hash, was, word) ? reason : TRY_AGAIN;
	switch (flow_add(p->hash, word, service_bits(&p->t))) {
	case ADDED:
		return reason;
	case LINES_FULL:
		return LB_TABLE_FULL;
	default:
		return TRY_AGAIN;
	}
}

/* sides_closed are those that a signal names, as enum closed. */
static __always_inline enum closed sides_closed(const struct sr *sr)
{
	_Static_assert(SID_CLIENT_CLOSED == CLOSED_CLIENT << 6 && SID_SERVER_CLOSED == CLOSED_SERVER
											       << 6,
		       "the flags of a signal are the sides of a word");
	return sr->sid.flags >> 6;
}

/* try_create applies createStickiness. Within a generation the first server keeps the flow. */
static __always_inline int try_create(const struct packet *p, __u32 server, __u16 generation,
				      enum closed closed, __u64 word)
{
	bool handshake = p->kind == KIND_UDP || (p->kind == KIND_TCP && p->flags & TCP_SYN), same;

	same = word && generation_in_word(word) == generation;
	if (word & WORD_ESTABLISHED) {
		if (same && server_in_word(word) == server)
			return store_word(p, word, closed_by(word, closed), LB_STICKINESS_REPEATED);
		if (same) {
			flow_find(p->hash, true);
			return LB_STICKINESS_CONFLICT;
		}
		if (!replaces(p->hash, word, server, generation))
			return p->kind == KIND_TCP && handshake ? LB_DROP_NOT_RELEASED
								: LB_CREATE_OLD_GENERATION;
	}
	if (!handshake) /* data: the client has acknowledged this server's SYN-ACK */
		return store_word(p, word,
				  closed_by(established_word(p, server, generation), closed),
				  LB_STICKINESS_RECOVERED);
	if (same && server_in_word(word) != server)
		return LB_STICKINESS_CONFLICT;
	if (same && p->kind == KIND_UDP)
		return store_word(p, word, word, LB_STICKINESS_REPEATED);
	return store_word(p, word, embryonic_word(server, generation, p->seq + 1),
			  same ? LB_STICKINESS_REPEATED : LB_STICKINESS_CREATED);
}

/* try_remove applies removeStickiness. A flow that it is the first signal of has an entry, too:
 * a cs that comes later than its rms would make an entry that nothing closes. */
static __always_inline int try_remove(const struct packet *p, __u32 server, __u16 generation,
				      enum closed closed, __u64 word)
{
	__u64 was = word;

	if (word && (generation_in_word(word) != generation || server_in_word(word) != server))
		return word & WORD_ESTABLISHED ? LB_REMOVE_OLD_GENERATION : LB_REMOVE_UNKNOWN;
	if (!(word & WORD_ESTABLISHED))
		word = established_word(p, server, generation);
	closed |= p->flags & TCP_RST ? CLOSED_RESET : CLOSED_SERVER;
	return store_word(p, was, closed_by(word, closed), LB_STICKINESS_REMOVED);
}

/* is_create tells createStickiness from removeStickiness. A RST in a cs removes: the connection
 * is over, whichever SID its server used. */
static __always_inline bool is_create(const struct scratch *scr)
{
	return scr->sr.sid.function_be == bpf_htons(FN_CREATE_STICKINESS) &&
	       !(scr->packet.flags & TCP_RST);
}

/* try_signal applies this CPU's signal to the flow's word: that of may_signal first. A function
 * of its own for the verifier. */
__noinline int try_signal(bool again)
{
	struct scratch *scr = scratch();
	enum closed closed;
	__u16 generation;

	if (!scr)
		return LB_TABLE_FULL;
	generation = bpf_ntohs(scr->sr.sid.generation_be);
	closed = sides_closed(&scr->sr);
	if (again)
		scr->word = flow_find(scr->packet.hash, false);
	return is_create(scr)
		       ? try_create(&scr->packet, scr->sender, generation, closed, scr->word)
		       : try_remove(&scr->packet, scr->sender, generation, closed, scr->word);
}

/* apply_signal applies the signal of a packet to its flow, and returns the counter of the
 * outcome, or TRY_AGAIN if other CPUs prevented all tries. */
static __always_inline int apply_signal(void)
{
	__u32 outcome = TRY_AGAIN;

	for (int i = 0; i < MAX_TRIES && outcome == TRY_AGAIN; i++) {
		if (i)
			pause_before(i);
		outcome = try_signal(i);
	}
	asm volatile("" : "+r"(outcome)); /* its bounds, which only the compiler knows */
	return outcome;
}

/* report_alive applies notMine of a server that has a live connection of the flow: no SYN that it
 * was asked about is another server's. */
static __always_inline void report_alive(const struct packet *p, __u32 server)
{
	__u64 word = flow_find(p->hash, false);

	if (word & WORD_ESTABLISHED && server_in_word(word) == server)
		flow_change(p->hash, word, announce(word, generation_in_word(word)));
}

/* remove_stale applies notMine to the word of a flow: it removes an entry that names this server,
 * and this generation; or, for a SYN that the server was asked about, an earlier connection with
 * it. Returns LB_STALE_REMOVED, LB_REMOVE_UNKNOWN if there is no such entry, or TRY_AGAIN. A
 * function of its own for the verifier. */
__noinline int remove_stale(__u64 hash, __u64 word, __u32 server, __u16 generation, bool opening)
{
	for (int i = 0; i < MAX_TRIES; i++) {
		if (!word || server_in_word(word) != server ||
		    !(opening ? is_held(word, generation) : generation_in_word(word) == generation))
			return LB_REMOVE_UNKNOWN;
		if (flow_change(hash, word, 0))
			return LB_STALE_REMOVED;
		pause_before(i);
		word = flow_seek(hash);
	}
	return TRY_AGAIN;
}
