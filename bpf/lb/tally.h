/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* tally.h: the occupancy of each server of a service that learns (HLB §IV-A), and the server with
 * the least of all scores
 *
 *	score = (established + embryonic + 1) * inverse
 *
 * in integers: inverse = round(2^16 * w_max / w), so that a score is off by 2^-17 of it at most
 * while weights differ by less than 256 and no server has 2^37 / inverse flows (8,192 at least, a
 * million where speeds are alike twofold), above which all scores are alike.
 *
 *	leaf  1024   score 37 | turn 16 | seat 10
 *	node   128   the least of 8 leaves
 *	top     16   the least of 8 nodes
 *
 * A choice looks at the 16 leaves, nodes or tops that cover the seats. A change of a count goes
 * up from its leaf: read a value, find the least below it, compare-and-swap, twice at most: if both
 * fail, another CPU has read the change. The leaf is computed from the count, so whichever CPU
 * writes it last has the truth. `turn` grows with each change, so that of equal servers the one
 * comes first that changed longest ago; user space begins it again before it is at its end.
 *
 * A flow counts by its word alone (share_of), and the CPU that swaps the word counts the
 * difference, in tally_change: where words change (flow_change), begin (note_begun), give way
 * (evict_from) and end (sweep.h). A move swaps nothing that counts. So each flow is counted once,
 * however many CPUs meet it. */
#pragma once
#include "core/clock.h"
#include "lb/word.h"
#include "table/slots.h"

/* Pinned with the flows that it counts. Mapped: user space writes weights and reads counts. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LEARNED + 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

#define NO_SEAT ((1ULL << 63) - 1) /* a leaf that is not chosen; values are below */
#define SCORE_SHIFT 26
#define MOST_SCORE ((1ULL << 37) - 2)
#define TURN_SHIFT 10
#define MOST_TURN ((1U << 16) - 1)
#define SAMPLED 16
#define GOLDEN 0x9e3779b9U /* of 2^32 */

/* below masks an index where the verifier sees it. */
#define below(i, n) asm volatile("%0 &= %1" : "+r"(i) : "i"((n) - 1))

static __always_inline struct tally *tally_at(__u32 number)
{
	return bpf_map_lookup_elem(&tallies, &number);
}

/* seat_in returns the seat in which the flow of a word counts, or NULL. */
static __always_inline struct seat *seat_in(__u64 word)
{
	struct tally *t = tally_at(tally_in_word(word));
	__u64 i = word >> WORD_SEAT;

	below(i, MAX_SEATS);
	return t ? &t->seat[i] : NULL;
}

/* tally_add_in adds a number to the count of a seat in which the flow of a word is. */
static __always_inline void tally_add_in(struct seat *s, __u64 word, __u64 number)
{
	__sync_fetch_and_add(&s->count[colour_of(word)], number);
}

/* tally_add is tally_add_in of the word's seat. */
static __always_inline void tally_add(__u64 word, __u64 number)
{
	struct seat *s = seat_in(word);

	if (s)
		tally_add_in(s, word, number);
}

/* tally_change counts the difference that the change of a word makes. Either word may be 0; with
 * both, the colour is the same. */
static __always_inline void tally_change(__u64 was, __u64 fresh)
{
	__u64 less = share_of(was), more = share_of(fresh);

	if (less != more)
		tally_add(less ? was : fresh, more - less);
}

/* smaller_of is larger_of of table/slots.h, the other way. */
static __always_inline __u64 smaller_of(__u64 a, __u64 b)
{
	__u64 less = a - b;

	__u64 sign = less;

	asm volatile("%0 s>>= 63" : "+r"(sign));
	return b + (less & sign);
}

/* occupancy is the number of a seat's flows: established ones, and embryonic ones if they count.
 * A count that another CPU is about to correct may be below 0. */
static __always_inline __u64 occupancy(const struct seat *s, __u32 counting)
{
	__u64 sum = READ_ONCE(s->count[0]) + READ_ONCE(s->count[1]);
	__s64 embryonic = (__s32)sum, all = (__s64)(sum - embryonic) >> 32;

	if (counting == COUNT_ALL)
		all += embryonic;
	return larger_of(all + (1LL << 32), 1LL << 32) - (1LL << 32);
}

/* leaf_of computes the value of a seat. */
static __always_inline __u64 leaf_of(const struct tally *t, const struct seat *s, __u64 i,
				     __u64 turn)
{
	__u64 inverse = READ_ONCE(s->inverse), score;

	if (!inverse)
		return NO_SEAT;
	score = (occupancy(s, READ_ONCE(t->counting)) + 1) * inverse;
	return smaller_of(score, MOST_SCORE) << SCORE_SHIFT |
	       smaller_of(turn, MOST_TURN) << TURN_SHIFT | i;
}

/* next_turn is the turn of a change. CPUs that change at once may have the same. */
static __always_inline __u64 next_turn(struct tally *t)
{
	__u32 turn = READ_ONCE(t->turn);

	t->turn = turn + 1;
	return turn;
}

/* least_of is the least of a line, by pairs, which the CPU compares at once. */
static __always_inline __u64 least_of(const __u64 *line)
{
	__u64 a = smaller_of(READ_ONCE(line[0]), READ_ONCE(line[1]));
	__u64 b = smaller_of(READ_ONCE(line[2]), READ_ONCE(line[3]));
	__u64 c = smaller_of(READ_ONCE(line[4]), READ_ONCE(line[5]));
	__u64 d = smaller_of(READ_ONCE(line[6]), READ_ONCE(line[7]));

	return smaller_of(smaller_of(a, b), smaller_of(c, d));
}

#define REFRESHES 2

/* renew makes a node the least of the line below it. */
static __always_inline void renew(__u64 *node, const __u64 *line)
{
	__u64 was, now;

	for (int i = 0; i < REFRESHES; i++) {
		was = READ_ONCE(*node);
		now = least_of(line);
		stall();
		if (was == now || compare_and_swap(node, was, now))
			return;
	}
}

/* renew_leaf makes a leaf the value of its seat, and returns that. With keep it has its turn, if it
 * has one. */
static __always_inline __u64 renew_leaf(struct tally *t, __u64 i, bool keep)
{
	__u64 was, now = 0, turn = keep ? 0 : next_turn(t);

	for (int k = 0; k < REFRESHES; k++) {
		was = READ_ONCE(t->leaf[i]);
		if (keep)
			turn = was == NO_SEAT ? next_turn(t) : was >> TURN_SHIFT & MOST_TURN;
		now = leaf_of(t, &t->seat[i], i, turn);
		if (compare_and_swap(&t->leaf[i], was, now))
			return now;
		stall();
	}
	return now;
}

/* is_above: a leaf with this new value leaves the node above it as it is, the leaf of another seat.
 * That leaf is read after this one was written: if it still has the node's value, a CPU that changes
 * it reads this one when it finds the least. */
static __always_inline bool is_above(const struct tally *t, __u64 value, const __u64 *node)
{
	__u64 least = READ_ONCE(*node), i = least;

	below(i, MAX_SEATS);
	stall();
	return value > least && READ_ONCE(t->leaf[i]) == least;
}

/* renew_above carries a leaf into the levels of the tree above it; all: whether or not a choice looks
 * at them. */
static __always_inline void renew_above(struct tally *t, __u64 i, bool all)
{
	__u64 up = i >> 3, top = i >> 6;

	below(up, MAX_SEATS / TREE_ARY);
	below(top, TREE_TOP);
	if (!all && t->seats <= TREE_TOP)
		return;
	stall();
	renew(&t->node[up], &t->leaf[up * TREE_ARY]);
	if (!all && t->seats <= TREE_TOP * TREE_ARY)
		return;
	stall();
	renew(&t->top[top], &t->node[top * TREE_ARY]);
}

/* renew_path carries a seat's count into its leaf and the tree. */
static __always_inline void renew_path(struct tally *t, __u64 i, bool keep, bool all)
{
	__u64 up = i >> 3, value;

	below(i, MAX_SEATS);
	below(up, MAX_SEATS / TREE_ARY);
	value = renew_leaf(t, i, keep);
	if (all || !is_above(t, value, &t->node[up]))
		renew_above(t, i, all);
}

/* moves_score: the change of a word changes the score of its seat. */
static __always_inline bool moves_score(const struct tally *t, __u64 was, __u64 fresh)
{
	__u64 less = share_of(was), more = share_of(fresh);

	if (t->counting == COUNT_ALL)
		less |= less << 32, more |= more << 32;
	return (less ^ more) >> 32;
}

/* least_of_top returns the least of the values that cover all seats. */
static __always_inline __u64 least_of_top(const struct tally *t)
{
	__u64 at = __builtin_offsetof(struct tally, top);
	const __u64 *line;

	if (t->seats <= TREE_TOP * TREE_ARY)
		at = t->seats <= TREE_TOP ? __builtin_offsetof(struct tally, leaf)
					  : __builtin_offsetof(struct tally, node);
	asm volatile("%0 &= 0xfff" : "+r"(at)); /* any of the three, for the verifier */
	line = (const void *)t + at;
	return smaller_of(least_of(line), least_of(line + TREE_ARY));
}

/* least_sampled returns the least of some leaves: of the smallest number with a square of the
 * number of seats at least, SAMPLED at most. More of a small farm would herd as all do, once clients
 * have a round trip; fewer are worse without. Each is a golden section of the circle from the one
 * before it, the first at random, so that the sample is spread over all seats: servers that are alike
 * often have seats side by side. Of equal scores the first is taken, as turns do not change with
 * embryonic flows; if none of the sample takes flows, the least of all. A function of its own, as it
 * is rare. */
__noinline __u64 least_sampled(__u32 number, __u64 hash)
{
	const struct tally *t = tally_at(number);
	__u64 seats, k, leaf, least = NO_SEAT;
	__u32 at = hash;

	if (!t)
		return NO_SEAT;
	seats = t->seats;

	for (__u64 i = 0; i < SAMPLED && i * i < seats; i++) {
		k = at * seats >> 32;
		below(k, MAX_SEATS);
		leaf = READ_ONCE(t->leaf[k]);
		least += (leaf - least) &
			 -(__u64)is_less(leaf >> SCORE_SHIFT, least >> SCORE_SHIFT);
		at += GOLDEN;
	}
	return least == NO_SEAT ? least_of_top(t) : least;
}

enum chosen {
	CHOSEN_SEAT_SHIFT = 16, /* the number of its server is below */
	CHOSEN_NONE = -1,
};

/* tally_choose returns the seat with the least score and its server, or CHOSEN_NONE. */
static __always_inline int tally_choose(__u32 number, __u64 hash)
{
	const struct tally *t = tally_at(number);
	__u64 least, seat;

	if (!t)
		return CHOSEN_NONE;
	least = t->counting == COUNT_FLOOD ? least_sampled(number, hash) : least_of_top(t);
	if (least == NO_SEAT)
		return CHOSEN_NONE;
	seat = least;
	below(seat, MAX_SEATS);
	return seat << CHOSEN_SEAT_SHIFT | (READ_ONCE(t->seat[seat].server) & WORD_SERVER);
}

/* date_now is the time in the unit of durations, never 0. */
static __always_inline __u16 date_now(void)
{
	__u16 now = ticked_ns() >> DATE_SHIFT;

	return now | is_less(now, 1);
}

/* tally_sample samples the duration of a flow that ends now, unless it is too old to have one. */
static __always_inline void tally_sample(struct seat *s, __u64 word)
{
	__u16 start = start_in_word(word), took = date_now() - start;
	__u64 i = s->ended;

	if (!start)
		return;
	s->ended = i + 1;
	below(i, SEAT_SAMPLES);
	s->sample[i] = took;
}

/* sample_age samples the age of a flow at a packet. A function of its own, as a flow has one such
 * packet in 2^28 ns at most. */
__noinline int sample_age(__u64 word)
{
	struct seat *s = seat_in(word);

	if (s)
		tally_sample(s, word);
	return 0;
}
