/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* weighted_choice.h: a seat of a tally by its rows (table/alias.h): at random by weight, in turn, or the better
 * of two. The rows are the servers that take new flows, in an order that all LBs share, so that LBs
 * with the same weights find the same server for a digest. Functions of their own, for the verifier. */
#pragma once
#include "lb/occupancy.h"
#include "table/alias.h"

static __always_inline __u64 row_at(const struct tally *t, __u64 i)
{
	below(i, MAX_SEATS);
	return READ_ONCE(t->row[i]);
}

/* seated is a seat with its server, or CHOSEN_NONE if no new flow goes there by now. */
static __always_inline int seated(const struct tally *t, __u64 seat)
{
	const struct seat *s;

	below(seat, MAX_SEATS);
	s = &t->seat[seat];
	return READ_ONCE(s->inverse)
		       ? (int)(seat << CHOSEN_SEAT_SHIFT | (READ_ONCE(s->server) & WORD_SERVER))
		       : CHOSEN_NONE;
}

/* deal_by_weight returns the seat that the digest of a flow has, whichever packet it is of. */
__noinline int deal_by_weight(__u32 number, __u64 hash)
{
	const struct tally *t = tally_at(number);
	__u32 place, rows = t ? READ_ONCE(t->rows) : 0, i;

	if (!t || !rows)
		return CHOSEN_NONE;
	i = alias_row(hash, rows, &place);
	return seated(t, alias_in(row_at(t, i), place));
}

/* deal_in_turn returns the next seat. */
__noinline int deal_in_turn(__u32 number)
{
	struct tally *t = tally_at(number);
	__u32 rows = t ? READ_ONCE(t->rows) : 0, place, i;

	if (!t || !rows)
		return CHOSEN_NONE;
	i = alias_turn(__sync_fetch_and_add(&t->walk, 1), rows, &place);
	return seated(t, alias_in(row_at(t, i), place));
}

/* score_of is the score of a seat by its flows. */
static __always_inline __u64 score_of(const struct tally *t, __u64 seat)
{
	below(seat, MAX_SEATS);
	return leaf_now(t, &t->seat[seat], 0, 0);
}

/* two_rows returns two different seats that the digest of a flow has: the first, and the second above. */
static __always_inline __u64 two_rows(const struct tally *t, __u32 rows, __u64 hash)
{
	__u64 i = (hash & 0xffffffff) * rows >> 32;
	__u64 j = i + 1 + ((hash >> 32) * (rows - 1) >> 32);

	j -= is_less(j, rows) ? 0 : rows;
	return (row_at(t, i) & 0xffff) | (row_at(t, j) & 0xffff) << 32;
}

/* deal_two returns the better of two different seats that the digest of a flow has, of equal seats the
 * first. */
__noinline int deal_two(__u32 number, __u64 hash)
{
	const struct tally *t = tally_at(number);
	__u32 rows = t ? READ_ONCE(t->rows) : 0;
	__u64 two, a, b;

	if (!t || !rows)
		return CHOSEN_NONE;
	two = two_rows(t, rows, hash);
	a = two & 0xffff;
	b = two >> 32;
	return seated(t, score_of(t, b) < score_of(t, a) ? b : a);
}

/* queue_of is the requests in hand of a seat's server: as reported, and the flows begun since, none if
 * the count went back, where CPUs met. */
static __always_inline __u64 queue_of(const struct tally *t, __u64 seat)
{
	const struct seat *s;
	__u64 reported;
	__s32 since;

	below(seat, MAX_SEATS);
	s = &t->seat[seat];
	reported = READ_ONCE(s->reported);
	since = READ_ONCE(s->begun) - (__u32)reported;
	return READ_ONCE(s->inverse) ? (reported >> 32) + larger_of(since, 0) : NO_SEAT;
}

/* deal_queue is deal_two by queue_of. */
__noinline int deal_queue(__u32 number, __u64 hash)
{
	const struct tally *t = tally_at(number);
	__u32 rows = t ? READ_ONCE(t->rows) : 0;
	__u64 two, a, b;

	if (!t || !rows)
		return CHOSEN_NONE;
	two = two_rows(t, rows, hash);
	a = two & 0xffff;
	b = two >> 32;
	return seated(t, queue_of(t, b) < queue_of(t, a) ? b : a);
}
