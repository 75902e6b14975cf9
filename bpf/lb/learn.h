/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learn.h: what servers tell the LB (6LB Table II), and what that changes. Each
 * decides on one word and swaps it; if another CPU was faster it decides anew. */
#pragma once
#include "lb/counters.h"
#include "lb/flow.h"
#include "lb/insert.h"
#include "packet/scratch.h"

#define TRY_AGAIN COUNTERS /* another CPU changed the entry */
#define MAX_TRIES 16

/* replaces tells whether a server may take over an entry of another generation:
 * the old connection is over, or its server says so itself, or the client began
 * anew here. Anything else is a late duplicate. */
static __always_inline bool replaces(__u64 flow, __u32 server, __u16 generation)
{
	return is_over(flow) || server_in_word(flow) == server || announced(flow) == generation;
}

/* store_word makes an entry say word, where find said was. */
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

/* try_create is createStickiness. Within one generation the first server stays. */
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
	if (!handshake) /* the client has acknowledged this one, whoever came first */
		return store_word(p->hash, word, established_word(server, generation),
				  LB_STICKINESS_RECOVERED);
	if (same && server_in_word(word) != server)
		return LB_STICKINESS_CONFLICT;
	if (same && p->kind == KIND_UDP)
		return store_word(p->hash, word, word, LB_STICKINESS_REPEATED);
	return store_word(p->hash, word, embryonic_word(server, generation, p->seq + 1),
			  same ? LB_STICKINESS_REPEATED : LB_STICKINESS_CREATED);
}

/* try_remove is removeStickiness. */
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

/* is_create tells createStickiness from removeStickiness. A RST is no word of a
 * connection that lives, whatever its server waits for. */
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

/* apply_signal does what the sender of a packet says of its flow, and returns what became of
 * it. */
static __always_inline int apply_signal(struct scratch *scr)
{
	bpf_loop(MAX_TRIES, try_signal, &scr, 0);
	if (scr->outcome != TRY_AGAIN)
		return scr->outcome;
	return is_create(scr) ? LB_STICKINESS_CONFLICT : LB_REMOVE_UNKNOWN;
}

/* remove_stale is notMine: an entry that names this server for this generation is
 * stale. */
static __always_inline bool remove_stale(const struct packet *p, __u32 server, __u16 generation)
{
	__u64 word = flow_find(p->hash, false);

	return word && server_in_word(word) == server && generation_in_word(word) == generation &&
	       flow_change(p->hash, word, 0);
}
