/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* place.h: how a flow comes by an entry of lines.h: a free one of its two lines,
 * else that of the oldest embryo there, else one whose flow can move to its other
 * line, if need be after another one has moved. */
#pragma once
#include "lb/lines.h"

/* claim takes a free entry of a line for a mark: 0 to 3, or LINE_SLOTS. A function
 * of its own for the verifier, as all below. */
__noinline int claim(__u32 line, __u64 fp)
{
	struct line *l = line_at(line);

	return l ? slot_claim(l->fingerprint, LINE_SLOTS, fp) : LINE_SLOTS;
}

#define NO_EMBRYONIC (-1)

/* oldest_embryonic returns a line's oldest embryo: its age, whether it is at home (of two as
 * old that one goes, as its going touches no other line), and in the last two bits
 * which entry it is; or NO_EMBRYONIC. */
__noinline int oldest_embryonic(__u32 line, __u16 now)
{
	struct line *l = line_at(line);
	__u64 fp, word;
	int oldest = NO_EMBRYONIC, is;

	for (__u32 i = 0; l && i < LINE_SLOTS; i++) {
		fp = READ_ONCE(l->fingerprint[i]);
		word = READ_ONCE(l->word[i]);
		is = (age_of(fp, now) * 2 + !(fp & IN_ALTERNATE)) * LINE_SLOTS +
		     (LINE_SLOTS - 1 - i);
		if (word && !(word & (WORD_ESTABLISHED | WORD_MOVING)) && is > oldest)
			oldest = is;
	}
	return oldest;
}

/* evict_embryonic gives the entry of an embryo to another mark; at no time is it free. */
__noinline bool evict_embryonic(__u32 line, __u32 i, __u64 fp)
{
	struct line *l = line_at(line);
	__u64 word, was;

	if (!l)
		return false;
	i &= LINE_SLOTS - 1;
	word = READ_ONCE(l->word[i]);
	if (!word || word & (WORD_ESTABLISHED | WORD_MOVING) ||
	    !compare_and_swap(&l->word[i], word, 0))
		return false;
	stall();
	was = READ_ONCE(l->fingerprint[i]);
	if (!compare_and_swap(&l->fingerprint[i], was, fp | (was & DISPLACED))) {
		release_slot(line, i); /* another CPU dates what was there, or counts */
		return false;
	}
	if (was & IN_ALTERNATE)
		uncount_displaced(alternate_line(line, was));
	return true;
}

static __always_inline bool has_free(const struct line *l)
{
	return is_free(READ_ONCE(l->fingerprint[0])) || is_free(READ_ONCE(l->fingerprint[1])) ||
	       is_free(READ_ONCE(l->fingerprint[2])) || is_free(READ_ONCE(l->fingerprint[3]));
}

/* claim_alternate takes a free entry for a flow whose home is another line: 0 to 3, or
 * LINE_SLOTS. */
static __always_inline __u32 claim_alternate(__u32 line, __u64 fp, __u32 primary)
{
	struct line *l = line_at(line);
	__u32 i;

	if (!l || !has_free(l) || !count_displaced(primary))
		return LINE_SLOTS;
	stall();
	i = claim(line, fp | IN_ALTERNATE);
	if (i == LINE_SLOTS)
		uncount_displaced(primary);
	return i;
}

/* relocate moves an entry of a line to its other one, if that has room. */
__noinline bool relocate(__u32 line, __u32 i)
{
	struct line *from = line_at(line), *to;
	__u64 fp, word;
	__u32 alternate, k;

	i &= LINE_SLOTS - 1;
	if (!from)
		return false;
	fp = READ_ONCE(from->fingerprint[i]);
	word = READ_ONCE(from->word[i]);
	alternate = alternate_line(line, fp);
	to = line_at(alternate);
	if (!to || alternate == line || is_free(fp) || !word || word & WORD_MOVING)
		return false;
	if (fp & IN_ALTERNATE)
		k = claim(alternate, fp & ~(IN_ALTERNATE | DISPLACED));
	else
		k = claim_alternate(alternate, fp & ~DISPLACED, line);
	if (k == LINE_SLOTS)
		return false;
	k &= LINE_SLOTS - 1;
	if (!compare_and_swap(&from->word[i], word, word | WORD_MOVING)) {
		release_slot(alternate, k);
		return false;
	}
	if ((READ_ONCE(from->fingerprint[i]) ^ fp) &
	    (DIGEST | IN_ALTERNATE)) { /* another flow's by now */
		exchange(&from->word[i], word);
		release_slot(alternate, k);
		return false;
	}
	stall();
	exchange(&to->word[k], word);
	stall();
	exchange(&from->word[i], 0);
	release_slot(line, i);
	return true;
}

/* make_room moves one that can move. */
__noinline bool make_room(__u32 line)
{
	for (__u32 i = 0; i < LINE_SLOTS; i++)
		if (relocate(line, i))
			return true;
	return false;
}

/* make_path makes room in the lines that a line's entries could move to. */
static __always_inline bool make_path(__u32 line)
{
	struct line *l = line_at(line);
	__u32 alternate;

	for (__u32 i = 0; l && i < LINE_SLOTS; i++) {
		alternate = alternate_line(line, READ_ONCE(l->fingerprint[i]));
		if (alternate != line && make_room(alternate))
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
__noinline int rivals_in(__u32 line, __u64 fp, __u32 own, __u32 first)
{
	struct line *l = line_at(line);
	enum rivals met = ALONE;
	__u16 now = seen_now();
	__u64 was, word;

	if (!l)
		return HELD;
#pragma unroll
	for (__u32 i = 0; i < LINE_SLOTS; i++) {
		was = READ_ONCE(l->fingerprint[i]);
		if (first + i == own || !same_fingerprint(was, fp))
			continue;
		word = READ_ONCE(l->word[i]);
		if (word && !(word & WORD_MOVING) && embryonic_expired(was, word, now)) {
			if (compare_and_swap(&l->word[i], word, 0))
				free_slot(line, l, i);
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
	__u64 fp = fingerprint_of(hash);
	__u32 primary = primary_line(hash), alternate = alternate_line(primary, fp);
	struct line *l = line_at(primary);
	__u64 displaced;
	int met;

	if (!l)
		return HELD;
	displaced = READ_ONCE(l->fingerprint[0]);
	met = rivals_in(primary, fp, own, 0);
	if (met == HELD || alternate == primary)
		return met;
	if (own < LINE_SLOTS && !((displaced | READ_ONCE(l->fingerprint[0])) & DISPLACED))
		return met;
	met = rivals_in(alternate, fp, own, LINE_SLOTS);
	return met == ALONE ? rivals_in(primary, fp, own, 0) : met; /* moved home meanwhile? */
}

#define NO_SLOT (2 * LINE_SLOTS) /* places are 0 to 7 */

/* claim_either takes a free entry of either line of a flow: its place, or NO_SLOT. */
__noinline int claim_either(__u64 hash)
{
	__u64 fp = fingerprint_of(hash) | seen_now();
	__u32 primary = primary_line(hash), alternate = alternate_line(primary, fp),
	      i = claim(primary, fp);

	if (i < LINE_SLOTS)
		return i;
	return alternate == primary ? NO_SLOT
				    : LINE_SLOTS + claim_alternate(alternate, fp, primary);
}

/* evict_oldest takes the entry of the oldest embryo in a flow's two lines: its place;
 * NO_SLOT, if another CPU changed it meanwhile; or NO_EMBRYONIC. */
__noinline int evict_oldest(__u64 hash)
{
	__u64 fp = fingerprint_of(hash) | seen_now();
	__u32 primary = primary_line(hash), alternate = alternate_line(primary, fp), i;
	__u16 now = fp;
	int first = oldest_embryonic(primary, now), second = oldest_embryonic(alternate, now);

	if (first == NO_EMBRYONIC && second == NO_EMBRYONIC)
		return NO_EMBRYONIC;
	if (second >> 2 <= first >> 2) {
		i = LINE_SLOTS - 1 - (first & (LINE_SLOTS - 1));
		return evict_embryonic(primary, i, fp) ? i : NO_SLOT;
	}
	i = LINE_SLOTS - 1 - (second & (LINE_SLOTS - 1));
	if (!count_displaced(primary))
		return NO_SLOT;
	if (evict_embryonic(alternate, i, fp | IN_ALTERNATE))
		return LINE_SLOTS + i;
	uncount_displaced(primary);
	return NO_SLOT;
}

/* claim_slot takes an entry for a flow: a free one, an embryo's, or one that can be
 * made free. */
static __always_inline __u32 claim_slot(__u64 hash)
{
	__u32 primary = primary_line(hash);
	int i = claim_either(hash);

	if (i >= NO_SLOT)
		i = evict_oldest(hash);
	if (i == NO_EMBRYONIC && !make_room(primary) &&
	    !make_room(alternate_line(primary, fingerprint_of(hash))) && !make_path(primary))
		return NO_SLOT;
	if (i < 0 || i >= NO_SLOT)
		i = claim_either(hash);
	return i < NO_SLOT ? i : claim_either(hash); /* another CPU dates what was there */
}

enum added {
	ADDED,
	LINES_FULL,
	EXISTS, /* another CPU was faster: find says what */
};

#define PATIENCE 16 /* looks at a rival that makes up its mind */

/* await_rivals looks at rivals until all have made up their minds. */
__noinline int await_rivals(__u64 hash, __u32 slot)
{
	int met = BEHIND;

	for (int i = 0; i < PATIENCE && met == BEHIND; i++)
		met = rivals(hash, slot);
	return met;
}

/* flow_add makes the entry of a flow that has none. */
__noinline int flow_add(__u64 hash, __u64 word)
{
	__u32 line = primary_line(hash), slot;
	struct line *l;
	int met;

	if (!word)
		return LINES_FULL;
	slot = claim_slot(hash);
	if (slot >= NO_SLOT)
		return LINES_FULL;
	if (slot >= LINE_SLOTS)
		line = alternate_line(line, fingerprint_of(hash));
	l = line_at(line);
	if (!l)
		return LINES_FULL;
	stall();
	met = rivals(hash, slot);
	if (met == BEHIND)
		met = await_rivals(hash, slot);
	slot &= LINE_SLOTS - 1;
	if (met == ALONE) {
		stall();
		exchange(&l->word[slot], word);
		return ADDED;
	}
	release_slot(line, slot);
	return EXISTS;
}
