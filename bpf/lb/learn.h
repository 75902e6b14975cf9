/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learn.h: the signals of servers (6LB Table II) and the changes they make. A change is decided
 * on one word and made by a compare-and-swap; if another CPU changed the word first, it is
 * decided again. */
#pragma once
#include "lb/counters.h"
#include "lb/flow.h"
#include "lb/insert.h"
#include "packet/scratch.h"

#define TRY_AGAIN COUNTERS /* another CPU changed the entry since the decision */
#define MAX_TRIES 16

/* replaces: a server may take over an entry of another generation if the old connection is
 * over, if it is the same server, or if the client sent a SYN of that generation here. Any
 * other signal is a late duplicate. */
static __always_inline bool replaces(__u64 flow, __u32 server, __u16 generation)
{
	return is_over(flow) || server_in_word(flow) == server || announced(flow) == generation;
}

/* store_word replaces the word that flow_find returned, or adds the entry if that was 0. */
static __always_inline enum counter store_word(__u64 hash, __u64 was, __u64 word,
					       enum counter reason)
{
	if (was)
		return flow_change(hash, was, word) ? reason : TRY_AGAIN;
	switch (flow_add(hash, word)) {
	case ADDED:
		return reason;
	case LINES_FULL:
		return LB_TABLE_FULL;
	default:
		return TRY_AGAIN;
	}
}

/* try_create applies createStickiness. Within one generation the first server keeps the flow. */
static __always_inline int try_create(const struct packet *p, __u32 server, __u16 generation)
{
	bool handshake = p->kind == KIND_UDP || (p->kind == KIND_TCP && p->flags & TCP_SYN), same;
	__u64 word = flow_find(p->hash, false);

	same = word && generation_in_word(word) == generation;
	if (word & WORD_ESTABLISHED) {
		if (same) {
			flow_find(p->hash, true);
			return server_in_word(word) == server ? LB_STICKINESS_REPEATED
							      : LB_STICKINESS_CONFLICT;
		}
		if (!replaces(word, server, generation))
			return LB_CREATE_OLD_GENERATION;
	}
	if (!handshake) /* data: the client has acknowledged this server's SYN-ACK */
		return store_word(p->hash, word, established_word(server, generation),
				  LB_STICKINESS_RECOVERED);
	if (same && server_in_word(word) != server)
		return LB_STICKINESS_CONFLICT;
	if (same && p->kind == KIND_UDP)
		return store_word(p->hash, word, word, LB_STICKINESS_REPEATED);
	return store_word(p->hash, word, embryonic_word(server, generation, p->seq + 1),
			  same ? LB_STICKINESS_REPEATED : LB_STICKINESS_CREATED);
}

/* try_remove applies removeStickiness. */
static __always_inline int try_remove(const struct packet *p, __u32 server, __u16 generation)
{
	__u64 word = flow_find(p->hash, false), closed;

	if (!word)
		return LB_REMOVE_UNKNOWN;
	if (generation_in_word(word) != generation || server_in_word(word) != server)
		return word & WORD_ESTABLISHED ? LB_REMOVE_OLD_GENERATION : LB_REMOVE_UNKNOWN;
	closed = closed_by(word, p->flags & TCP_RST ? CLOSED_RESET : CLOSED_SERVER);
	return store_word(p->hash, word, word & WORD_ESTABLISHED ? closed : 0,
			  LB_STICKINESS_REMOVED);
}

/* is_create tells createStickiness from removeStickiness. A RST in a cs removes: the connection
 * is over, whichever SID its server used. */
static __always_inline bool is_create(const struct scratch *scr)
{
	return scr->sr.sid.function_be == bpf_htons(FN_CREATE_STICKINESS) &&
	       !(scr->packet.flags & TCP_RST);
}

/* try_signal is the callback of bpf_loop; 1 ends it. */
static long try_signal(__u64 i, struct scratch **at)
{
	struct scratch *scr = *at;
	__u16 generation = bpf_ntohs(scr->sr.sid.generation_be);

	scr->outcome = is_create(scr) ? try_create(&scr->packet, scr->sender, generation)
				      : try_remove(&scr->packet, scr->sender, generation);
	return scr->outcome != TRY_AGAIN;
}

/* apply_signal applies the signal of a packet to its flow, and returns the counter of the
 * outcome. */
static __always_inline int apply_signal(struct scratch *scr)
{
	bpf_loop(MAX_TRIES, try_signal, &scr, 0);
	if (scr->outcome != TRY_AGAIN)
		return scr->outcome;
	return is_create(scr) ? LB_STICKINESS_CONFLICT : LB_REMOVE_UNKNOWN;
}

/* remove_stale applies notMine: it removes an entry that names this server and generation. */
static __always_inline bool remove_stale(const struct packet *p, __u32 server, __u16 generation)
{
	__u64 word = flow_find(p->hash, false);

	return word && server_in_word(word) == server && generation_in_word(word) == generation &&
	       flow_change(p->hash, word, 0);
}
