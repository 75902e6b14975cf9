/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* insert.h: a new flow gets a slot of flow_table.h: a free slot of its two lines, else the slot of
 * an entry there that is spent, else the slot of an entry that can move to its alternate
 * line, if need be after a third entry has moved, else the slot of an entry that gives way
 * (evict.h). */
#pragma once
#include "lb/evict.h"

/* claim takes a free slot of a line: 0 to 3, or LINE_SLOTS. Functions here are noinline so that
 * the verifier looks at each once. */
__noinline int claim(__u32 line, __u64 fp)
{
	struct line *l = line_at(line);
	__u32 i = l ? slot_claim(l->fingerprint, LINE_SLOTS, fp) : LINE_SLOTS;

	if (i < LINE_SLOTS)
		set_hint(line, i, hint_of(fp));
	return i;
}

static __always_inline bool has_free(const struct line *l)
{
	return is_free(READ_ONCE(l->fingerprint[0])) || is_free(READ_ONCE(l->fingerprint[1])) ||
	       is_free(READ_ONCE(l->fingerprint[2])) || is_free(READ_ONCE(l->fingerprint[3]));
}

/* claim_alternate takes a free slot of a line for a flow with another primary line: 0 to 3, or
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

/* take_room takes a free slot of line l, or a spent entry's, for an entry that moves there: 0
 * to 3, or LINE_SLOTS. */
static __always_inline int take_room(__u32 line, const struct line *l, __u64 fp, __u32 primary)
{
	__u64 rank = 0;
	__u32 i;

	if (!has_free(l)) {
		rank = readiest_spent(line, seen_now());
		if (!(rank >> RANK_WAY))
			return LINE_SLOTS;
	}
	if (fp & IN_ALTERNATE && !count_displaced(primary))
		return LINE_SLOTS;
	stall();
	i = rank ? evict(line, fp, rank) : claim(line, fp);
	if (i == LINE_SLOTS && fp & IN_ALTERNATE)
		uncount_displaced(primary);
	return i;
}

/* relocate moves an entry to its other line, if that has room. */
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
	k = take_room(alternate, to, (fp ^ IN_ALTERNATE) & ~DISPLACED, line);
	if (k == LINE_SLOTS)
		return false;
	k &= LINE_SLOTS - 1;
	if (!compare_and_swap(&from->word[i], word, word | WORD_MOVING)) {
		release_slot(alternate, k);
		return false;
	}
	if ((READ_ONCE(from->fingerprint[i]) ^ fp) &
	    (DIGEST | IN_ALTERNATE)) { /* the slot is another flow's by now */
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

/* make_room frees a slot of a line by a move. */
static __always_inline bool make_room(__u32 line)
{
	for (__u32 i = 0; i < LINE_SLOTS; i++)
		if (relocate(line, i))
			return true;
	return false;
}

/* Entries of a line for which make_path looks further: with more of them a new flow at a full table
 * costs more than three times the dearest packet at a table with room (TestCost). */
#define PATHS 2

/* make_path frees a slot of a line by two moves: first in a line to which an entry of this
 * line can move. */
static __always_inline bool make_path(__u32 line)
{
	struct line *l = line_at(line);
	__u32 alternate;

	for (__u32 i = 0; l && i < PATHS; i++) {
		alternate = alternate_line(line, READ_ONCE(l->fingerprint[i]));
		if (alternate != line && make_room(alternate))
			return make_room(line);
	}
	return false;
}

enum rivals {
	ALONE,
	BEHIND, /* another CPU adds the flow and has a later slot than this one */
	HELD,	/* the flow has an entry, or another CPU adds it and has an earlier slot */
};

/* rivals_in looks in a line, with slots from number `first` on, for other entries of the
 * flow that this CPU adds in slot `own`. */
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
				release_slot(line, i);
			else
				met = BEHIND; /* it was established or removed: look again */
		} else if (word || first + i < own) {
			return HELD;
		} else {
			met = BEHIND;
		}
	}
	return met;
}

/* rivals looks in both lines. Slots 0 to 3 are in the primary line, 4 to 7 in the alternate
 * one. If this entry is in the primary line, and that counts no displaced entries before and
 * after the search, the alternate line has none: a CPU that adds the flow there later finds
 * this entry first. */
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
	return met == ALONE ? rivals_in(primary, fp, own, 0)
			    : met; /* a rival may have moved to the primary line meanwhile */
}

/* matches counts the slots of a line with the fingerprint of a flow. Without a branch. */
static __always_inline __u64 matches(const struct line *l, __u64 fp)
{
	__u64 n = 0;

#pragma unroll
	for (__u32 i = 0; i < LINE_SLOTS; i++)
		n += is_less((READ_ONCE(l->fingerprint[i]) ^ fp) >> DIGEST_SHIFT, 1);
	return n;
}

/* is_alone is rivals where the fingerprints show that the flow has no second entry: the only entry is
 * in slot `own`. */
static __always_inline bool is_alone(const struct line *l, const struct line *other, __u64 fp,
				     __u32 own)
{
	__u64 displaced = READ_ONCE(l->fingerprint[0]), here = is_less(own, LINE_SLOTS);

	if (matches(l, fp) != here)
		return false;
	if (here && !((displaced | READ_ONCE(l->fingerprint[0])) & DISPLACED))
		return true;
	stall();
	if (!other || other == l || matches(other, fp) != 1 - here)
		return false;
	stall();
	return matches(l, fp) == here;
}

#define NO_SLOT (2 * LINE_SLOTS) /* slots are 0 to 7 */

/* claim_either takes a free slot of either line of a flow: its number, or NO_SLOT. */
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

#define NO_VICTIM (-1)

/* take_better takes the slot of the entry with the higher rank, of an entry in each of a flow's
 * lines: its number; NO_SLOT if another CPU changed the entry meanwhile; or NO_VICTIM. */
__noinline int take_better(__u64 hash, __u64 first, __u64 second)
{
	__u64 fp = fingerprint_of(hash) | seen_now();
	__u32 primary = primary_line(hash), i;

	if (!((first | second) >> RANK_WAY))
		return NO_VICTIM;
	if (second >> 2 <= first >> 2) {
		i = evict(primary, fp, first);
		return i < LINE_SLOTS ? i : NO_SLOT;
	}
	if (!count_displaced(primary))
		return NO_SLOT;
	i = evict(alternate_line(primary, fp), fp | IN_ALTERNATE, second);
	if (i == LINE_SLOTS)
		uncount_displaced(primary);
	return LINE_SLOTS + i;
}

/* take_readiest is take_better among all entries that give way to a flow of a service. */
static __always_inline int take_readiest(__u64 hash, __u32 primary, __u32 alternate, __u64 service)
{
	return take_better(hash, readiest(primary, alternate, service),
			   readiest(alternate, primary, service));
}

/* move_aside frees a slot of either line by moves. */
static __always_inline bool move_aside(__u32 primary, __u32 alternate)
{
	return make_room(primary) || make_room(alternate) || make_path(primary);
}

/* take_spent takes a free slot of a flow's alternate line, or that of the spent entry that gives
 * way first, of those in both lines: its number; NO_SLOT if another CPU was quicker; or
 * NO_VICTIM. A single function, as a full table has a new flow end here in most cases. */
__noinline int take_spent(__u64 hash)
{
	__u64 fp = fingerprint_of(hash) | seen_now(), first, second;
	__u32 primary = primary_line(hash), alternate = alternate_line(primary, fp);
	__u32 line = primary, i;
	struct line *l = line_at(primary), *other = line_at(alternate);
	struct lifetimes limit = lifetimes();

	if (!l || !other)
		return NO_VICTIM;
	if (l != other && has_free(other)) {
		i = claim_alternate(alternate, fp, primary);
		if (i < LINE_SLOTS)
			return LINE_SLOTS + i;
	}
	first = spent_in(l, fp, limit);
	second = spent_in(other, fp, limit);
	if (!((first | second) >> RANK_WAY))
		return NO_VICTIM;
	if (second >> 2 > first >> 2) {
		if (!count_displaced(primary))
			return NO_SLOT;
		fp |= IN_ALTERNATE;
		first = second;
		line = alternate;
		l = other;
	}
	i = evict_from(line, l, fp, first);
	if (i < LINE_SLOTS)
		return fp & IN_ALTERNATE ? LINE_SLOTS + i : i;
	if (fp & IN_ALTERNATE)
		uncount_displaced(primary);
	return NO_SLOT;
}

/* force_slot takes a slot where take_spent found none: a slot that a move frees, or that of an entry
 * that gives way. Its number, or NO_SLOT. */
__noinline int force_slot(__u64 hash, __u64 service, int found)
{
	__u32 primary = primary_line(hash),
	      alternate = alternate_line(primary, fingerprint_of(hash));
	int i = found;

	if (i == NO_VICTIM && !move_aside(primary, alternate)) {
		i = take_readiest(hash, primary, alternate, service);
		if (i == NO_VICTIM)
			return NO_SLOT;
	}
	if (i < 0 || i == NO_SLOT)
		i = claim_either(hash);
	return i == NO_SLOT ? claim_either(hash)
			    : i; /* another CPU dated the entry that was there */
}

/* any_slot hides the number of a slot from the verifier, behind a number that it does not know, so that
 * it looks at the code that follows once for all slots. */
static __always_inline __u32 any_slot(__u64 slot, __u64 unknown)
{
	asm volatile("%0 ^= %1" : "+r"(slot) : "r"(unknown));
	asm volatile("%0 ^= %1" : "+r"(slot) : "r"(unknown));
	asm volatile("%0 &= %1" : "+r"(slot) : "i"(NO_SLOT - 1));
	return slot;
}

enum added {
	ADDED,
	LINES_FULL,
	EXISTS, /* another CPU added the flow: flow_find returns its word */
};

/* Times that rivals are looked at until they are ALONE or HELD: other CPUs that add the flow have
 * written their words by then, or given up. */
#define PATIENCE 16

/* flow_add adds an entry for a flow of a service that has none: enum added. */
__noinline int flow_add(__u64 hash, __u64 word, __u64 service)
{
	__u64 fp = fingerprint_of(hash);
	__u32 line = primary_line(hash), slot;
	struct line *l = line_at(line), *other;
	int met = BEHIND;

	if (!word || !l)
		return LINES_FULL;
	slot = slot_claim(l->fingerprint, LINE_SLOTS, fp | seen_now());
	if (slot < LINE_SLOTS) {
		set_hint(line, slot, hint_of(fp));
	} else {
		slot = take_spent(hash);
		if (slot >= NO_SLOT)
			slot = force_slot(hash, service, slot);
	}
	if (slot >= NO_SLOT)
		return LINES_FULL;
	slot = any_slot(slot, hash);
	l = line_at(primary_line(hash));
	other = line_at(alternate_line(primary_line(hash), fp));
	if (!l || !other)
		return LINES_FULL;
	stall();
	if (is_alone(l, other, fp, slot))
		met = ALONE;
	for (int i = 0; i < PATIENCE && met == BEHIND; i++)
		met = rivals(hash, slot);
	if (slot >= LINE_SLOTS) {
		line = alternate_line(line, fp);
		l = other;
	}
	slot &= LINE_SLOTS - 1;
	if (met == ALONE) {
		stall();
		exchange(&l->word[slot], word);
		return ADDED;
	}
	release_slot(line, slot);
	return EXISTS;
}
