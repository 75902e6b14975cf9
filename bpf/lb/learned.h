/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learned.h: flows that count at their servers (HLB §IV-A, Figure 4a). The LB sees the client's
 * side alone:
 *
 *   (none)       SYN, datagram     -> embryonic, with the server of the least score
 *   (none)       other TCP packets -> embryonic, with the presumed owner
 *   embryonic    the next packet   -> counted; may give way as a flow of two datagrams does
 *   counted      the next packet   -> for good
 *   any          FIN, RST          -> closing: not counted; its duration is sampled if it was
 *   closing      payload, or after a RST or a SYN any packet -> counted again
 *   counted      silence (sweep.h) -> silent: not counted
 *   silent       any packet        -> counted again
 *   embryonic    10 s              -> (none)
 *   any other    idle              -> (none)
 *
 * So a forged FIN, RST or SYN costs the flow nothing. */
#pragma once
#include "lb/counters.h"
#include "lb/flow.h"
#include "lb/tally.h"

/* begins: the packet is one that begins a flow, if that is not known. */
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
		return started(word & WORD_COUNTED ? word : word | WORD_ALIVE, date_now());
	}
	if (word & WORD_EMBRYONIC)
		return (word & ~WORD_EMBRYONIC) | WORD_COUNTED;
	if (word & WORD_COUNTED)
		return word & ~WORD_BRIEF;
	if (!p->payload && (word & WORD_CLOSING) == WORD_CLIENT_CLOSED)
		return word; /* it acknowledges the server's data */
	return (word & ~WORD_CLOSING) | WORD_COUNTED;
}

/* note_change does all that belongs to the change of a word that this CPU made. */
static __always_inline void note_change(__u64 was, __u64 fresh)
{
	struct tally *t;
	struct seat *s;
	__u64 i = seat_in_word(was);

	if (share_of(was) == share_of(fresh))
		return;
	t = tally_at(tally_in_word(was));
	if (!t)
		return;
	below(i, MAX_SEATS);
	s = &t->seat[i];
	if (was & WORD_EMBRYONIC && fresh & WORD_COUNTED) {
		count(LB_FLOW_ESTABLISHED);
		s->lived++;
	}
	if (was & WORD_COUNTED)
		tally_sample(s, was);
	if (t->ranked && moves_score(t, was, fresh))
		renew_path(t, i, false, false);
}

/* note_begun counts a new flow in its seat, and does all else that belongs to it. A function of its
 * own, for the stack of keep. */
__noinline int note_begun(__u64 word)
{
	struct tally *t = tally_at(tally_in_word(word));
	__u64 i = word >> WORD_SEAT;

	if (!t)
		return 0;
	below(i, MAX_SEATS);
	tally_add_in(&t->seat[i], word, share_of(word));
	t->seat[i].begun++;
	if (t->ranked && moves_score(t, 0, word))
		renew_path(t, i, false, false);
	return 0;
}

/* observe_learned returns the word of a flow after a packet of its client. If another CPU changes
 * the entry at once, its change stays. */
static __always_inline __u64 observe_learned(const struct packet *p, __u64 word)
{
	__u64 fresh = after_packet(p, word);

	if (fresh != word && flow_change(p->hash, word, fresh))
		note_change(word, fresh);
	return fresh;
}
