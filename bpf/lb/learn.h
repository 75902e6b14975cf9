/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learn.h: what servers tell the LB (6LB Table II), and what that changes. Each
 * decides on one word and swaps it; if another CPU was faster it decides anew. */
#pragma once
#include "core/count.h"
#include "lb/flow.h"
#include "lb/place.h"
#include "packet/scratch.h"

#define AGAIN COUNTERS /* another CPU changed the entry */
#define MOST_TRIES 16

/* replaces tells whether a server may take over an entry of another generation:
 * the old connection is over, or its server says so itself, or the client began
 * anew here. Anything else is a late duplicate. */
static __always_inline bool replaces(__u64 flow, __u32 server, __u16 generation)
{
	return is_over(flow) || server_in_word(flow) == server || announced(flow) == generation;
}

/* put_word makes an entry say word, where find said was. */
static __always_inline enum counter put_word(__u64 hash, __u64 was, __u64 word, enum counter why)
{
	if (was)
		return change(hash, was, word) ? why : AGAIN;
	switch (add(hash, word)) {
	case ADDED:
		return why;
	case NO_PLACE:
		return LB_TABLE_FULL;
	default:
		return AGAIN;
	}
}

/* learn_once is createStickiness. Within one generation the first server stays. */
static __always_inline int learn_once(const struct packet *p, __u32 server, __u16 generation)
{
	bool handshake = p->kind == KIND_UDP || (p->kind == KIND_TCP && p->flags & TCP_SYN), same;
	__u64 word = find(p->hash, false);

	same = word && generation_in_word(word) == generation;
	if (word & WORD_FLOW) {
		if (same) {
			find(p->hash, true);
			return server_in_word(word) == server ? LB_STICKINESS_REPEATED
							      : LB_STICKINESS_CONFLICT;
		}
		if (!replaces(word, server, generation))
			return LB_CREATE_OLD_GENERATION;
	}
	if (!handshake) /* the client has acknowledged this one, whoever came first */
		return put_word(p->hash, word, flow_word(server, generation), LB_STICKINESS_RECOVERED);
	if (same && server_in_word(word) != server)
		return LB_STICKINESS_CONFLICT;
	if (same && p->kind == KIND_UDP)
		return put_word(p->hash, word, word, LB_STICKINESS_REPEATED);
	return put_word(p->hash, word, embryo_word(server, generation, p->seq + 1),
			same ? LB_STICKINESS_REPEATED : LB_STICKINESS_CREATED);
}

/* forget_once is removeStickiness. */
static __always_inline int forget_once(const struct packet *p, __u32 server, __u16 generation)
{
	__u64 word = find(p->hash, false), closed;

	if (!word)
		return LB_REMOVE_UNKNOWN;
	if (generation_in_word(word) != generation || server_in_word(word) != server)
		return word & WORD_FLOW ? LB_REMOVE_OLD_GENERATION : LB_REMOVE_UNKNOWN;
	closed = closed_by(word, p->flags & TCP_RST ? CLOSED_RESET : CLOSED_SERVER);
	return put_word(p->hash, word, word & WORD_FLOW ? closed : 0, LB_STICKINESS_REMOVED);
}

/* creates tells createStickiness from removeStickiness. A RST is no word of a
 * connection that lives, whatever its server waits for. */
static __always_inline bool creates(const struct work *w)
{
	return w->sr.sid.function_be == bpf_htons(FN_CREATE_STICKINESS) &&
	       !(w->packet.flags & TCP_RST);
}

/* hear_once is the callback of bpf_loop; 1 ends it. */
static long hear_once(__u64 i, struct work **at)
{
	struct work *w = *at;
	__u16 generation = bpf_ntohs(w->sr.sid.generation_be);

	w->heard = creates(w) ? learn_once(&w->packet, w->sender, generation)
			      : forget_once(&w->packet, w->sender, generation);
	return w->heard != AGAIN;
}

/* hear does what the sender of a packet says of its flow, and returns what became of
 * it. */
static __always_inline int hear(struct work *w)
{
	bpf_loop(MOST_TRIES, hear_once, &w, 0);
	if (w->heard != AGAIN)
		return w->heard;
	return creates(w) ? LB_STICKINESS_CONFLICT : LB_REMOVE_UNKNOWN;
}

/* disown is notMine: an entry that names this server for this generation is
 * stale. */
static __always_inline bool disown(const struct packet *p, __u32 server, __u16 generation)
{
	__u64 word = find(p->hash, false);

	return word && server_in_word(word) == server && generation_in_word(word) == generation &&
	       change(p->hash, word, 0);
}
