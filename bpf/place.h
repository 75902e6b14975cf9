/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* place.h: how a flow comes by an entry of lines.h: a free one of its two lines,
 * else that of the oldest embryo there, else one whose flow can move to its other
 * line, if need be after another one has moved. */
#pragma once
#include "lines.h"

/* claim takes a free entry of a line for a mark: 0 to 3, or LINE_ENTRIES. */
static __always_inline __u32 claim(struct line *l, __u64 mark)
{
	__u64 was;
	__u32 i;

#pragma unroll
	for (i = 0; i < LINE_ENTRIES; i++) {
		was = peek(l->mark[i]);
		if (is_free(was) && swap_if(&l->mark[i], was, mark))
			break;
	}
	return i;
}

#define NOTHING (-1)

/* oldest_in returns a line's oldest embryo: its age, and in the last two bits which
 * entry it is; or NOTHING. A function of its own for the verifier, as all below. */
__noinline int oldest_in(__u32 line, __u16 now)
{
	struct line *l = line_at(line);
	__u64 mark, word;
	int oldest = NOTHING, is;

	for (__u32 i = 0; l && i < LINE_ENTRIES; i++) {
		mark = peek(l->mark[i]);
		word = peek(l->word[i]);
		is = (int)age_of(mark, now) * LINE_ENTRIES + (LINE_ENTRIES - 1 - i);
		if (word && !(word & (WORD_FLOW | WORD_MOVES)) && is > oldest)
			oldest = is;
	}
	return oldest;
}

/* evict takes the entry of an embryo for a mark. */
static __always_inline bool evict(struct line *l, __u32 i, __u64 mark)
{
	__u64 word;

	i &= LINE_ENTRIES - 1;
	word = peek(l->word[i]);
	if (!word || word & (WORD_FLOW | WORD_MOVES) || !swap_if(&l->word[i], word, 0))
		return false;
	swap(&l->mark[i], mark);
	return true;
}

/* move_to moves a flow's entry into a free one of its other line. */
static __always_inline bool move_to(struct line *to, struct line *from, __u32 i, __u64 mark)
{
	__u64 word;
	__u32 k;

	i &= LINE_ENTRIES - 1;
	word = peek(from->word[i]);
	if (is_free(mark) || !word || word & WORD_MOVES)
		return false;
	k = claim(to, mark);
	if (k == LINE_ENTRIES)
		return false;
	k &= LINE_ENTRIES - 1;
	if (!swap_if(&from->word[i], word, word | WORD_MOVES)) {
		swap(&to->mark[k], 0);
		return false;
	}
	if (!same_mark(peek(from->mark[i]), mark)) { /* another flow's by now */
		swap(&from->word[i], word);
		swap(&to->mark[k], 0);
		return false;
	}
	stall();
	swap(&to->word[k], word);
	stall();
	swap(&from->word[i], 0);
	swap(&from->mark[i], 0);
	return true;
}

/* move_away moves an entry of a line to its other one, if that has room. */
__noinline bool move_away(__u32 line, __u32 i)
{
	struct line *l = line_at(line), *o;
	__u32 other;
	__u64 mark;

	if (!l)
		return false;
	mark = peek(l->mark[i & (LINE_ENTRIES - 1)]);
	other = other_of(line, mark);
	o = line_at(other);
	return o && other != line && move_to(o, l, i, mark);
}

/* make_room moves one that can move. */
__noinline bool make_room(__u32 line)
{
	for (__u32 i = 0; i < LINE_ENTRIES; i++)
		if (move_away(line, i))
			return true;
	return false;
}

/* make_way makes room in the lines that a line's entries could move to. */
__noinline bool make_way(__u32 line)
{
	struct line *l = line_at(line);
	__u32 other;

	if (!l)
		return false;
	for (__u32 i = 0; i < LINE_ENTRIES; i++) {
		other = other_of(line, peek(l->mark[i]));
		if (other != line && make_room(other))
			return make_room(line);
	}
	return false;
}

enum rivals {
	ALONE,
	BEHIND, /* another CPU makes an entry of the flow, after ours */
	HELD,	/* it has one, or another CPU makes one before ours */
};

/* rivals_in looks for other entries of the flow whose owner has `own`. */
static __always_inline enum rivals rivals_in(struct line *l, __u64 mark, __u32 own, __u32 first,
					     __u16 now)
{
	enum rivals met = ALONE;
	__u64 was, word;

#pragma unroll
	for (__u32 i = 0; i < LINE_ENTRIES; i++) {
		was = peek(l->mark[i]);
		if (first + i == own || !same_mark(was, mark))
			continue;
		word = peek(l->word[i]);
		if (word && !(word & WORD_MOVES) && expired(was, word, now)) {
			if (swap_if(&l->word[i], word, 0))
				swap(&l->mark[i], 0);
			else
				met = BEHIND; /* it hatched, or is removed: look again */
		} else if (word || first + i < own) {
			return HELD;
		} else {
			met = BEHIND;
		}
	}
	return met;
}

/* rivals looks in both lines; places are 0 to 3 in the home line and 4 to 7 in
 * the other one. */
__noinline int rivals(__u64 hash, __u32 own)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash), other = other_of(home, mark);
	struct line *l = line_at(home), *o = line_at(other);
	enum rivals met;
	__u16 now = seen_now();

	if (!l || !o)
		return HELD;
	met = rivals_in(l, mark, own, 0, now);
	if (met == HELD || other == home)
		return met;
	met = rivals_in(o, mark, own, LINE_ENTRIES, now);
	return met == ALONE ? rivals_in(l, mark, own, 0, now) : met; /* moved home meanwhile? */
}

#define NOWHERE (2 * LINE_ENTRIES) /* places are 0 to 7 */

/* claim_either takes a free entry of either line of a flow: its place, or NOWHERE. */
__noinline int claim_either(__u64 hash)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash), other = other_of(home, mark), i;
	struct line *l = line_at(home), *o = line_at(other);

	if (!l || !o)
		return NOWHERE;
	mark |= seen_now();
	i = claim(l, mark);
	if (i == LINE_ENTRIES && other != home)
		i += claim(o, mark);
	return other == home && i == LINE_ENTRIES ? NOWHERE : i;
}

/* own_place takes an entry for a flow: a free one, an embryo's, or one that can be
 * made free. */
static __always_inline __u32 own_place(__u64 hash)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash), other = other_of(home, mark), i;
	__u16 now = seen_now();
	int first, second;
	struct line *l;

	i = claim_either(hash);
	if (i < NOWHERE)
		return i;
	first = oldest_in(home, now);
	second = other == home ? NOTHING : oldest_in(other, now);
	if (first != NOTHING || second != NOTHING) {
		bool there = second >> 2 > first >> 2;

		i = LINE_ENTRIES - 1 - ((there ? second : first) & (LINE_ENTRIES - 1));
		l = line_at(there ? other : home);
		return l && evict(l, i, mark | now) ? i + there * LINE_ENTRIES : NOWHERE;
	}
	if (!make_room(home) && !make_room(other) && !make_way(home) && !make_way(other))
		return NOWHERE;
	return claim_either(hash);
}

enum added {
	ADDED,
	NO_PLACE,
	WAS_THERE, /* another CPU was faster: find says what */
};

#define PATIENCE 32 /* looks at a rival that makes up its mind */

/* outlast looks at rivals until all have made up their minds. */
__noinline int outlast(__u64 hash, __u32 place)
{
	int met = BEHIND;

	for (int i = 0; i < PATIENCE && met == BEHIND; i++)
		met = rivals(hash, place);
	return met;
}

/* add makes the entry of a flow that has none. */
__noinline int add(__u64 hash, __u64 word)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash), place;
	struct line *l;
	int met;

	if (!word)
		return NO_PLACE;
	place = own_place(hash);
	if (place >= NOWHERE)
		return NO_PLACE;
	l = line_at(place < LINE_ENTRIES ? home : other_of(home, mark));
	if (!l)
		return NO_PLACE;
	stall();
	met = rivals(hash, place);
	if (met == BEHIND)
		met = outlast(hash, place);
	place &= LINE_ENTRIES - 1;
	if (met == ALONE) {
		stall();
		swap(&l->word[place], word);
		return ADDED;
	}
	swap(&l->mark[place], 0);
	return WAS_THERE;
}
