/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learn.h: what servers tell the LB (6LB Table II), and what that changes. Each
 * decides on one word and swaps it; if another CPU was faster it decides anew. */
#pragma once
#include "count.h"
#include "flow.h"
#include "place.h"

#define AGAIN COUNTERS /* another CPU changed the entry */
#define MOST_TRIES 4

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
	bool handshake, same;
	__u64 word;

	handshake = p->kind == KIND_UDP || (p->kind == KIND_TCP && p->flags & TCP_SYN);
	word = find(p->hash, false);
	same = word && generation_in_word(word) == generation;
	if (word & WORD_FLOW) {
		if (same) {
			find(p->hash, true);
			return server_in_word(word) == server ? LB_STICKINESS_REPEATED
							      : LB_STICKINESS_CONFLICT;
		}
		if (!replaces(word, server, generation))
			return LB_CREATE_OLD_GENERATION;
		same = false;
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
	__u64 word, closed;

	word = find(p->hash, false);
	if (!word)
		return LB_REMOVE_UNKNOWN;
	if (generation_in_word(word) != generation || server_in_word(word) != server)
		return word & WORD_FLOW ? LB_REMOVE_OLD_GENERATION : LB_REMOVE_UNKNOWN;
	closed = closed_by(word, p->flags & TCP_RST ? CLOSED_RESET : CLOSED_SERVER);
	return put_word(p->hash, word, word & WORD_FLOW ? closed : 0, LB_STICKINESS_REMOVED);
}

__noinline int learn(const struct packet *p, __u32 server, __u16 generation)
{
	int why = AGAIN;

	for (int i = 0; p && i < MOST_TRIES && why == AGAIN; i++)
		why = learn_once(p, server, generation);
	return why == AGAIN ? LB_STICKINESS_CONFLICT : why;
}

__noinline int forget(const struct packet *p, __u32 server, __u16 generation)
{
	int why = AGAIN;

	for (int i = 0; p && i < MOST_TRIES && why == AGAIN; i++)
		why = forget_once(p, server, generation);
	return why == AGAIN ? LB_REMOVE_UNKNOWN : why;
}

/* disown is notMine: an entry that names this server for this generation is
 * stale. */
static __always_inline bool disown(const struct packet *p, __u32 server, __u16 generation)
{
	__u64 word = find(p->hash, false);

	return word && server_in_word(word) == server && generation_in_word(word) == generation &&
	       change(p->hash, word, 0);
}
