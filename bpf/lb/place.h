/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* place.h: how a flow comes by an entry of lines.h: a free one of its two lines,
 * else that of the oldest embryo there, else one whose flow can move to its other
 * line, if need be after another one has moved. */
#pragma once
#include "lb/lines.h"

/* claim takes a free entry of a line for a mark: 0 to 3, or LINE_ENTRIES. A function
 * of its own for the verifier, as all below. */
__noinline int claim(__u32 line, __u64 mark)
{
	struct line *l = line_at(line);
	__u64 was;
	__u32 i;

	if (!l)
		return LINE_ENTRIES;
#pragma unroll
	for (i = 0; i < LINE_ENTRIES; i++) {
		was = peek(l->mark[i]);
		if (is_free(was) && swap_if(&l->mark[i], was, mark | (was & STRAYS)))
			break;
	}
	return i;
}

#define NOTHING (-1)

/* oldest_in returns a line's oldest embryo: its age, whether it is at home (of two as
 * old that one goes, as its going touches no other line), and in the last two bits
 * which entry it is; or NOTHING. */
__noinline int oldest_in(__u32 line, __u16 now)
{
	struct line *l = line_at(line);
	__u64 mark, word;
	int oldest = NOTHING, is;

	for (__u32 i = 0; l && i < LINE_ENTRIES; i++) {
		mark = peek(l->mark[i]);
		word = peek(l->word[i]);
		is = (age_of(mark, now) * 2 + !(mark & AWAY)) * LINE_ENTRIES + (LINE_ENTRIES - 1 - i);
		if (word && !(word & (WORD_FLOW | WORD_MOVES)) && is > oldest)
			oldest = is;
	}
	return oldest;
}

/* displace gives the entry of an embryo to another mark; at no time is it free. */
__noinline bool displace(__u32 line, __u32 i, __u64 mark)
{
	struct line *l = line_at(line);
	__u64 word, was;

	if (!l)
		return false;
	i &= LINE_ENTRIES - 1;
	word = peek(l->word[i]);
	if (!word || word & (WORD_FLOW | WORD_MOVES) || !swap_if(&l->word[i], word, 0))
		return false;
	stall();
	was = peek(l->mark[i]);
	if (!swap_if(&l->mark[i], was, mark | (was & STRAYS))) {
		release(line, i); /* another CPU dates what was there, or counts */
		return false;
	}
	if (was & AWAY)
		uncount_stray(other_of(line, was));
	return true;
}

static __always_inline bool has_free(const struct line *l)
{
	return is_free(peek(l->mark[0])) || is_free(peek(l->mark[1])) ||
	       is_free(peek(l->mark[2])) || is_free(peek(l->mark[3]));
}

/* claim_away takes a free entry for a flow whose home is another line: 0 to 3, or
 * LINE_ENTRIES. */
static __always_inline __u32 claim_away(__u32 line, __u64 mark, __u32 home)
{
	struct line *l = line_at(line);
	__u32 i;

	if (!l || !has_free(l) || !count_stray(home))
		return LINE_ENTRIES;
	stall();
	i = claim(line, mark | AWAY);
	if (i == LINE_ENTRIES)
		uncount_stray(home);
	return i;
}

/* move_away moves an entry of a line to its other one, if that has room. */
__noinline bool move_away(__u32 line, __u32 i)
{
	struct line *from = line_at(line), *to;
	__u64 mark, word;
	__u32 other, k;

	i &= LINE_ENTRIES - 1;
	if (!from)
		return false;
	mark = peek(from->mark[i]);
	word = peek(from->word[i]);
	other = other_of(line, mark);
	to = line_at(other);
	if (!to || other == line || is_free(mark) || !word || word & WORD_MOVES)
		return false;
	if (mark & AWAY)
		k = claim(other, mark & ~(AWAY | STRAYS));
	else
		k = claim_away(other, mark & ~STRAYS, line);
	if (k == LINE_ENTRIES)
		return false;
	k &= LINE_ENTRIES - 1;
	if (!swap_if(&from->word[i], word, word | WORD_MOVES)) {
		release(other, k);
		return false;
	}
	if ((peek(from->mark[i]) ^ mark) & (DIGEST | AWAY)) { /* another flow's by now */
		swap(&from->word[i], word);
		release(other, k);
		return false;
	}
	stall();
	swap(&to->word[k], word);
	stall();
	swap(&from->word[i], 0);
	release(line, i);
	return true;
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
static __always_inline bool make_way(__u32 line)
{
	struct line *l = line_at(line);
	__u32 other;

	for (__u32 i = 0; l && i < LINE_ENTRIES; i++) {
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
__noinline int rivals_in(__u32 line, __u64 mark, __u32 own, __u32 first)
{
	struct line *l = line_at(line);
	enum rivals met = ALONE;
	__u16 now = seen_now();
	__u64 was, word;

	if (!l)
		return HELD;
#pragma unroll
	for (__u32 i = 0; i < LINE_ENTRIES; i++) {
		was = peek(l->mark[i]);
		if (first + i == own || !same_mark(was, mark))
			continue;
		word = peek(l->word[i]);
		if (word && !(word & WORD_MOVES) && expired(was, word, now)) {
			if (swap_if(&l->word[i], word, 0))
				vacate(line, l, i);
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
 * the other one. Who is at home and counts no strays, before and after, has none
 * away: one that comes later meets the entry at home. */
__noinline int rivals(__u64 hash, __u32 own)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash), other = other_of(home, mark);
	struct line *l = line_at(home);
	__u64 strays;
	int met;

	if (!l)
		return HELD;
	strays = peek(l->mark[0]);
	met = rivals_in(home, mark, own, 0);
	if (met == HELD || other == home)
		return met;
	if (own < LINE_ENTRIES && !((strays | peek(l->mark[0])) & STRAYS))
		return met;
	met = rivals_in(other, mark, own, LINE_ENTRIES);
	return met == ALONE ? rivals_in(home, mark, own, 0) : met; /* moved home meanwhile? */
}

#define NOWHERE (2 * LINE_ENTRIES) /* places are 0 to 7 */

/* claim_either takes a free entry of either line of a flow: its place, or NOWHERE. */
__noinline int claim_either(__u64 hash)
{
	__u64 mark = mark_of(hash) | seen_now();
	__u32 home = home_of(hash), other = other_of(home, mark), i = claim(home, mark);

	if (i < LINE_ENTRIES)
		return i;
	return other == home ? NOWHERE : LINE_ENTRIES + claim_away(other, mark, home);
}

/* take_oldest takes the entry of the oldest embryo in a flow's two lines: its place;
 * NOWHERE, if another CPU changed it meanwhile; or NOTHING. */
__noinline int take_oldest(__u64 hash)
{
	__u64 mark = mark_of(hash) | seen_now();
	__u32 home = home_of(hash), other = other_of(home, mark), i;
	__u16 now = mark;
	int first = oldest_in(home, now), second = oldest_in(other, now);

	if (first == NOTHING && second == NOTHING)
		return NOTHING;
	if (second >> 2 <= first >> 2) {
		i = LINE_ENTRIES - 1 - (first & (LINE_ENTRIES - 1));
		return displace(home, i, mark) ? i : NOWHERE;
	}
	i = LINE_ENTRIES - 1 - (second & (LINE_ENTRIES - 1));
	if (!count_stray(home))
		return NOWHERE;
	if (displace(other, i, mark | AWAY))
		return LINE_ENTRIES + i;
	uncount_stray(home);
	return NOWHERE;
}

/* own_place takes an entry for a flow: a free one, an embryo's, or one that can be
 * made free. */
static __always_inline __u32 own_place(__u64 hash)
{
	__u32 home = home_of(hash);
	int i = claim_either(hash);

	if (i >= NOWHERE)
		i = take_oldest(hash);
	if (i == NOTHING && !make_room(home) && !make_room(other_of(home, mark_of(hash))) &&
	    !make_way(home))
		return NOWHERE;
	if (i < 0 || i >= NOWHERE)
		i = claim_either(hash);
	return i < NOWHERE ? i : claim_either(hash); /* another CPU dates what was there */
}

enum added {
	ADDED,
	NO_PLACE,
	WAS_THERE, /* another CPU was faster: find says what */
};

#define PATIENCE 16 /* looks at a rival that makes up its mind */

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
	__u32 line = home_of(hash), place;
	struct line *l;
	int met;

	if (!word)
		return NO_PLACE;
	place = own_place(hash);
	if (place >= NOWHERE)
		return NO_PLACE;
	if (place >= LINE_ENTRIES)
		line = other_of(line, mark_of(hash));
	l = line_at(line);
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
	release(line, place);
	return WAS_THERE;
}
