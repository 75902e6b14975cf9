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

/* oldest_of notes the older of *age and a line's embryos: where it is. */
static __always_inline __u32 oldest_of(struct line *l, __u16 now, __s32 *age)
{
	__u32 at = LINE_ENTRIES;
	__u64 mark, word;

#pragma unroll
	for (__u32 i = 0; i < LINE_ENTRIES; i++) {
		mark = peek(l->mark[i]);
		word = peek(l->word[i]);
		if (!word || word & (WORD_FLOW | WORD_MOVES) || age_of(mark, now) <= *age)
			continue;
		*age = age_of(mark, now);
		at = i;
	}
	return at;
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

/* make_room moves an entry of a line to its other one, if that has room. */
__noinline bool make_room(__u32 line)
{
	struct line *l = line_at(line), *o;
	__u32 other;
	__u64 mark;

	if (!l)
		return false;
	for (__u32 i = 0; i < LINE_ENTRIES; i++) {
		mark = peek(l->mark[i]);
		other = other_of(line, mark);
		o = line_at(other);
		if (o && other != line && move_to(o, l, i, mark))
			return true;
	}
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

/* own_place takes an entry for a flow: a free one, an embryo's, or one that can be
 * made free. LINE_ENTRIES * 2: there is none. */
static __always_inline __u32 own_place(__u64 hash)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash), other = other_of(home, mark), i, k;
	__u32 second = other == home ? 0 : LINE_ENTRIES; /* where the other line's places begin */
	struct line *l = line_at(home), *o = line_at(other);
	__u16 now = seen_now();
	__s32 age = -1;

	if (!l || !o)
		return 2 * LINE_ENTRIES;
	mark |= now;
	i = claim(l, mark);
	if (i < LINE_ENTRIES)
		return i;
	i = claim(o, mark);
	if (i < LINE_ENTRIES)
		return second + i;
	i = oldest_of(l, now, &age);
	k = oldest_of(o, now, &age);
	if (k < LINE_ENTRIES)
		return evict(o, k, mark) ? second + k : 2 * LINE_ENTRIES;
	if (i < LINE_ENTRIES)
		return evict(l, i, mark) ? i : 2 * LINE_ENTRIES;
	if (!make_room(home) && !make_room(other) && !make_way(home) && !make_way(other))
		return 2 * LINE_ENTRIES;
	i = claim(l, mark);
	if (i < LINE_ENTRIES)
		return i;
	i = claim(o, mark);
	return i < LINE_ENTRIES ? second + i : 2 * LINE_ENTRIES;
}

enum added {
	ADDED,
	NO_PLACE,
	WAS_THERE, /* another CPU was faster: find says what */
};

#define PATIENCE 64 /* looks at a rival that makes up its mind */

/* add makes the entry of a flow that has none. */
__noinline int add(__u64 hash, __u64 word)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash), place;
	struct line *l;
	int met = HELD;

	if (!word)
		return NO_PLACE;
	place = own_place(hash);
	if (place >= 2 * LINE_ENTRIES)
		return NO_PLACE;
	l = line_at(place < LINE_ENTRIES ? home : other_of(home, mark));
	if (!l)
		return NO_PLACE;
	stall();
	for (int i = 0; i < PATIENCE; i++) {
		met = rivals(hash, place);
		if (met != BEHIND)
			break;
	}
	place &= LINE_ENTRIES - 1;
	if (met == ALONE) {
		stall();
		swap(&l->word[place], word);
		return ADDED;
	}
	swap(&l->mark[place], 0);
	return WAS_THERE;
}
