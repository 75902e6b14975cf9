/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learned_flows.h: flows that count at their servers (HLB §IV-A, Figure 4a). The LB sees the client's
 * side alone:
 *
 *   (none)       SYN, datagram     -> embryonic, with the server of the least score
 *   (none)       other TCP packets -> embryonic, with the presumed owner
 *   embryonic    the next packet   -> counted; may give way as a flow of two datagrams does
 *   counted      the next packet   -> for good
 *   any          FIN, RST          -> closing: not counted; its duration is sampled if it was
 *   closing      payload, or after a RST or a SYN any packet -> counted again
 *   closing      SYN after a second of silence (client_flows.h) -> (none), and the SYN begins a flow
 *   counted      silence (sweep.h) -> silent: not counted
 *   silent       any packet        -> counted again
 *   embryonic    10 s              -> (none)
 *   any other    idle              -> (none)
 *
 * So a forged FIN, RST or SYN costs the flow nothing; but a FIN or RST and then a SYN may, if its
 * client is silent for a second in between. */
#pragma once
#include "lb/counters.h"
#include "lb/flow.h"
#include "lb/occupancy.h"

/* begins: the packet begins a flow, if that is not known. */
static __always_inline bool begins(const struct packet *p)
{
	return opens(p) || p->kind == KIND_UDP;
}

/* opening_word is the word of a new flow in a seat. */
static __always_inline __u64 opening_word(const struct packet *p, __u32 server, __u32 tally,
					  __u32 seat, __u16 start)
{
	__u64 word = WORD_ESTABLISHED | WORD_KEPT | WORD_LEARNED | WORD_EMBRYONIC | WORD_BRIEF |
		     WORD_OF_TALLY;

	const struct tally *t = tally_at(tally);

	if (p->t.protocol == IPPROTO_UDP)
		word |= WORD_UDP;
	if (t)
		word = coloured(word, READ_ONCE(t->colour)) | (t->ages ? WORD_AGES : 0);
	return word | (server & WORD_SERVER) | (__u64)(tally & MAX_LEARNED) << WORD_TALLY |
	       (__u64)(seat & (MAX_SEATS - 1)) << WORD_SEAT | (__u64)start << 16;
}

#define WORD_CLOSING (WORD_CLIENT_CLOSED | WORD_SILENT | WORD_ALIVE)

static __always_inline __u64 closing(__u64 word)
{
	return (word & ~(WORD_COUNTED | WORD_EMBRYONIC | WORD_BRIEF | WORD_CLOSING)) |
	       WORD_CLIENT_CLOSED;
}

/* after_packet returns the word of a flow after a packet of its client. */
static __always_inline __u64 after_packet(const struct packet *p, __u64 word)
{
	if (p->kind == KIND_TOO_BIG)
		return word;
	if (p->flags & TCP_RST)
		return closing(word) | WORD_ALIVE;
	if (p->flags & TCP_FIN)
		return closing(word);
	if (opens(p)) { /* again, or of a later connection */
		if (word & WORD_EMBRYONIC)
			return word;
		if (!(word & WORD_COUNTED))
			word |= WORD_ALIVE | (word & WORD_CLIENT_CLOSED ? WORD_BRIEF : 0);
		return started(word, date_now());
	}
	if (word & WORD_EMBRYONIC)
		return (word & ~WORD_EMBRYONIC) | WORD_COUNTED;
	if (word & WORD_COUNTED)
		return word & ~WORD_BRIEF;
	if (!p->payload && (word & WORD_CLOSING) == WORD_CLIENT_CLOSED)
		return word; /* it acknowledges the server's data */
	return (word & ~WORD_CLOSING) | WORD_COUNTED;
}

/* move_seat adds a number to the count of the seat of a word's flow, and the seat's score
 * changes by it in the tree. A function of its own, for the stack of its callers. */
__noinline int move_seat(__u64 word, __u64 number)
{
	struct tally *t = tally_at(tally_in_word(word));
	__u64 i = word >> WORD_SEAT, was;
	struct put put;

	if (!t)
		return 0;
	below(i, MAX_SEATS);
	put_path(t, i, number, &put);
	stall();
	was = __sync_fetch_and_add(&t->seat[i].count[colour_of(word)], number);
	asm volatile("" : "+r"(was)); /* so that it is an addition that orders memory */
	stall();
	was += READ_ONCE(t->seat[i].count[1 ^ colour_of(word)]);
	if (wrong_leaf(t, i, &put, was) | (put.above ? wrong_above(t, i) : is_below(t, i)))
		renew_until_right(tally_in_word(word), i);
	return 0;
}

/* change_share counts that the share of a word's flow changes in its seat, which is in the tally. */
static __always_inline void change_share(const struct tally *t, struct seat *s, __u64 word,
					 __u64 less, __u64 more)
{
	if (moves_score(t, less, more))
		move_seat(word, more - less);
	else
		tally_add_in(s, word, more - less);
}

/* learn_begun counts a new flow, which is embryonic. */
static __always_inline void learn_begun(__u64 word)
{
	struct tally *t = tally_at(tally_in_word(word));
	__u64 i = word >> WORD_SEAT;

	if (!t)
		return;
	below(i, MAX_SEATS);
	t->seat[i].begun++;
	change_share(t, &t->seat[i], word, 0, SHARE_EMBRYONIC);
}

/* learn_change counts the change of a word that this CPU made, by which its share changes. One of the
 * words is of another kind, or 0, if it has no share. It samples how long a flow lasted that no longer
 * counts. */
static __always_inline void learn_change(__u64 was, __u64 fresh)
{
	__u64 less = share_of(was), more = share_of(fresh);
	__u64 word = is_learned(fresh) ? fresh : was, i = word >> WORD_SEAT;
	struct tally *t = tally_at(tally_in_word(word));

	if (!t)
		return;
	below(i, MAX_SEATS);
	if (less & more >> 32) /* from embryonic to counted */
		t->seat[i].lived++;
	if (was & ~fresh & WORD_COUNTED)
		tally_sample(&t->seat[i], was);
	change_share(t, &t->seat[i], word, less, more);
}

/* flow_learn is flow_change for a packet of the client, which the tree follows at once. */
__noinline bool flow_learn(__u64 hash, __u64 word, __u64 fresh)
{
	if (!flow_swap(hash, word, fresh))
		return false;
	if (share_of(word) != share_of(fresh))
		learn_change(word, fresh);
	return true;
}

/* observe_learned returns the word of a flow after a packet of its client. If another CPU changes
 * the entry at once, its change stays. */
static __always_inline __u64 observe_learned(const struct packet *p, __u64 word)
{
	__u64 fresh = after_packet(p, word);

	if (fresh != word && flow_learn(p->hash, word, fresh) && word & WORD_EMBRYONIC &&
	    fresh & WORD_COUNTED)
		count(LB_FLOW_ESTABLISHED);
	return fresh;
}
