/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* occupancy.h: the occupancy of each server of a service that learns (HLB §IV-A), and the server with
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
 * A choice looks at the 16 leaves, nodes or tops that cover the seats. A packet that changes a count
 * first stores the path from its leaf up as it will be, without locks; then it adds to the count,
 * which orders memory; then it looks at the path again, and makes wrong values right. The last CPU to
 * add sees the stores of all. `turn` grows with each change, so that of equal servers that comes
 * first that changed longest ago. User space begins it again before it is at its end, in a random order:
 * LBs with the same order would follow each other.
 *
 * A flow counts by its word alone (share_of), and the CPU that swaps the word counts the difference:
 * learn_change (learned_flows.h) for a packet of its client and the entry that it makes; tally_change
 * where an entry gives way (evict_from), ends (sweep.h) or is an agent's to change (flow_change). A
 * move swaps nothing that counts. So each flow is counted once, however many CPUs meet it. */
#pragma once
#include "core/clock.h"
#include "lb/learned_word.h"
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

/* seat_in returns the seat where the flow of a word counts, or NULL. */
static __always_inline struct seat *seat_in(__u64 word)
{
	struct tally *t = tally_at(tally_in_word(word));
	__u64 i = word >> WORD_SEAT;

	below(i, MAX_SEATS);
	return t ? &t->seat[i] : NULL;
}

/* tally_add_in adds a number to the count of the seat of a word's flow. */
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

/* tally_change counts the difference that the change of a word makes, and leaves the tree to user
 * space. Either word may be 0; with both, the colour is the same. */
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

/* mask_if_0 is all ones if a number is 0, else 0; without a branch, as is_less. */
static __always_inline __u64 mask_if_0(__u64 number)
{
	return -is_less(number, 1);
}

/* occupancy is the number of flows in a sum of counts: established flows, and embryonic flows if they
 * count. A count that another CPU is about to correct may be below 0. */
static __always_inline __u64 occupancy(__u64 sum, __u32 counting)
{
	__s64 embryonic = (__s32)sum, all = (__s64)(sum - embryonic) >> 32;

	_Static_assert(COUNT_ALL == 0, "a mask tells");
	all += embryonic & mask_if_0(counting);
	return larger_of(all + (1LL << 32), 1LL << 32) - (1LL << 32);
}

/* flows_in is the sum of a seat's counts: flows that are established, and in the lower half embryonic. */
static __always_inline __u64 flows_in(const struct seat *s)
{
	return READ_ONCE(s->count[0]) + READ_ONCE(s->count[1]);
}

/* leaf_of computes the value of a seat. */
static __always_inline __u64 leaf_of(__u64 sum, __u32 counting, __u64 inverse, __u64 turn, __u64 i)
{
	__u64 score = (occupancy(sum, counting) + 1) * inverse;

	return (smaller_of(score, MOST_SCORE) << SCORE_SHIFT | (turn & MOST_TURN) << TURN_SHIFT |
		i | mask_if_0(inverse)) &
	       NO_SEAT;
}

/* leaf_now computes the value of a seat as its count is, with another turn and number. */
static __always_inline __u64 leaf_now(const struct tally *t, const struct seat *s, __u64 turn,
				      __u64 i)
{
	return leaf_of(flows_in(s), READ_ONCE(t->counting), READ_ONCE(s->inverse), turn, i);
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

/* turn_in is the turn of a leaf; of a leaf that is not chosen, that of now. */
static __always_inline __u64 turn_in(const struct tally *t, __u64 leaf)
{
	__u64 none = mask_if_0(leaf ^ NO_SEAT);

	return (leaf >> TURN_SHIFT & MOST_TURN & ~none) | (READ_ONCE(t->turn) & none);
}

/* is_below: the leaf of a seat may be less than the node above it, or the node is that leaf's or
 * wrong. Else it is the leaf of another seat, which is read after this leaf was written: if it still
 * has the node's value, a CPU that changes it reads this leaf when it finds the least. */
static __always_inline __u64 is_below(const struct tally *t, __u64 i)
{
	__u64 least, at, leaf = READ_ONCE(t->leaf[i]), up = i >> 3;

	below(up, MAX_SEATS / TREE_ARY);
	at = least = READ_ONCE(t->node[up]);
	stall();
	below(at, MAX_SEATS);
	return (READ_ONCE(t->leaf[at]) ^ least) | (is_less(least, leaf) ^ 1);
}

/* wrong_above is 0 if the values above a seat that a choice looks at are the least below them. */
static __always_inline __u64 wrong_above(const struct tally *t, __u64 i)
{
	__u64 up = i >> 3, top = i >> 6, wrong;

	below(up, MAX_SEATS / TREE_ARY);
	below(top, TREE_TOP);
	wrong = READ_ONCE(t->node[up]) ^ least_of(&t->leaf[up * TREE_ARY]);
	if (t->seats > TREE_TOP * TREE_ARY)
		wrong |= READ_ONCE(t->top[top]) ^ least_of(&t->node[top * TREE_ARY]);
	return wrong;
}

/* A leaf as a CPU stored it, and all that it follows from but the turn. */
struct put {
	__u64 leaf, sum, inverse;
	__u32 counting;
	__u64 above; /* 0: the values above it were left alone */
};

/* wrong_leaf is 0 if the leaf of a seat is that of its count: if all is as when this CPU stored it. Of a
 * leaf that another CPU stored since it knows nothing, and returns not 0. `sum` was the count when this
 * CPU added to it. */
static __always_inline __u64 wrong_leaf(const struct tally *t, __u64 i, const struct put *put,
					__u64 sum)
{
	return (READ_ONCE(t->leaf[i]) ^ put->leaf) | (sum ^ put->sum) |
	       (READ_ONCE(t->seat[i].inverse) ^ put->inverse) |
	       (READ_ONCE(t->counting) ^ put->counting);
}

/* put_path stores the path of a seat as it is once the seat's count has grown by a number. */
static __always_inline void put_path(struct tally *t, __u64 i, __u64 number, struct put *put)
{
	const struct seat *s = &t->seat[i];
	__u64 up = i >> 3, top = i >> 6, is;

	below(up, MAX_SEATS / TREE_ARY);
	below(top, TREE_TOP);
	put->sum = flows_in(s);
	put->inverse = READ_ONCE(s->inverse);
	put->counting = READ_ONCE(t->counting);
	put->leaf = leaf_of(put->sum + number, put->counting, put->inverse, next_turn(t), i);
	WRITE_ONCE(t->leaf[i], put->leaf);
	stall();
	put->above = is = is_below(t, i);
	asm volatile("%0 |= 0"
		     : "+r"(put->above)); /* the verifier goes on from here once, not twice */
	if (!is)
		return;
	WRITE_ONCE(t->node[up], least_of(&t->leaf[up * TREE_ARY]));
	stall();
	if (t->seats > TREE_TOP * TREE_ARY)
		WRITE_ONCE(t->top[top], least_of(&t->node[top * TREE_ARY]));
}

/* renew puts the value that the CPU has found in the place of another, and returns not 0 if they differ. */
static __always_inline __u64 renew(__u64 *at, __u64 was, __u64 now)
{
	stall();
	if (was != now)
		__sync_val_compare_and_swap(at, was, now);
	return was ^ now;
}

/* renew_above makes right the values above a leaf, whether or not a choice looks at them, and returns
 * 0 if they were. */
static __always_inline __u64 renew_above(struct tally *t, __u64 i)
{
	__u64 up = i >> 3, top = i >> 6, was, wrong;

	below(up, MAX_SEATS / TREE_ARY);
	below(top, TREE_TOP);
	was = READ_ONCE(t->node[up]);
	wrong = renew(&t->node[up], was, least_of(&t->leaf[up * TREE_ARY]));
	was = READ_ONCE(t->top[top]);
	return wrong | renew(&t->top[top], was, least_of(&t->node[top * TREE_ARY]));
}

/* renew_path corrects a leaf and the values above it, and returns whether a value was wrong: then
 * another CPU may just make it wrong again. The leaf keeps its turn. A function of its own, as it is
 * rare. */
__noinline bool renew_path(__u32 number, __u64 i)
{
	struct tally *t = tally_at(number);
	__u64 was, wrong;

	if (!t)
		return false;
	below(i, MAX_SEATS);
	was = READ_ONCE(t->leaf[i]);
	wrong = renew(&t->leaf[i], was, leaf_now(t, &t->seat[i], turn_in(t, was), i));
	return wrong | renew_above(t, i);
}

#define RENEWALS 16 /* while other CPUs make it wrong again */

/* renew_until_right makes right the path of a seat. A function of its own, for the verifier. */
__noinline int renew_until_right(__u32 number, __u64 i)
{
	for (int k = 0; k < RENEWALS && renew_path(number, i); k++)
		;
	return 0;
}

/* moves_score: a count that loses one share and gains another changes the score of its seat, which is
 * in the tree. */
static __always_inline bool moves_score(const struct tally *t, __u64 less, __u64 more)
{
	__u64 moved = less ^ more;

	moved ^= moved << 32 & mask_if_0(READ_ONCE(t->counting));
	return (moved >> 32) * READ_ONCE(t->ranked);
}

/* least_of_top returns the least of the values that cover all seats. Without a branch, for the
 * verifier. */
static __always_inline __u64 least_of_top(const struct tally *t)
{
	__u64 at = __builtin_offsetof(struct tally, top), seats = t->seats;
	const __u64 *line;

	at += sizeof(t->top) * is_less(seats, TREE_TOP * TREE_ARY + 1) +
	      sizeof(t->node) * is_less(seats, TREE_TOP + 1);
	asm volatile("%0 &= 0xfff" : "+r"(at)); /* any of the three, for the verifier */
	line = (const void *)t + at;
	return smaller_of(least_of(line), least_of(line + TREE_ARY));
}

/* least_sampled returns the least of some leaves: of the smallest number with a square of the
 * number of seats at least, SAMPLED at most. More of a small farm would herd as all do, once clients
 * have a round trip; fewer are worse without. Each is a golden section of the circle from that
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

/* tally_sample samples the duration of a flow that ends now, unless it is too old to have a duration. */
static __always_inline void tally_sample(struct seat *s, __u64 word)
{
	__u16 start = start_in_word(word);
	__u64 i = s->ended;

	if (!start)
		return;
	s->ended = i + 1;
	below(i, SEAT_SAMPLES);
	s->sample[i] = date_now() - start;
}

/* sample_of samples how long a flow lasted until now. A function of its own, for the verifier. */
__noinline int sample_of(__u64 word)
{
	struct seat *s = seat_in(word);

	if (s)
		tally_sample(s, word);
	return 0;
}
