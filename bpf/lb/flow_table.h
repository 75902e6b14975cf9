/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow_table.h: the table of flows, shared by all CPUs without locks. A line is one cache
 * line: four slots, each a fingerprint and a word.
 *
 *   fingerprint  digest 43 | in alternate 1 | displaced 4 | seen 16 (table/slots.h)
 *   word         state of the flow (flow.h); 0: no entry yet, or no longer
 *
 * A flow's entry is in its primary line or in its alternate line. The fingerprint and
 * either line give the other line, so an entry can move. A reader skips the alternate line
 * while the primary line counts no displaced entries.
 *
 * A CPU that takes a free slot owns it until it writes the word. From then on the word is
 * the truth: a change or removal of the entry is a compare-and-swap of the word, which
 * fails if another CPU changed it first. `seen` is stored without compare-and-swap: at
 * worst it dates another flow's entry.
 *
 * A CPU that moves an entry sets WORD_MOVING, which stops changes, writes the new slot,
 * and then empties the old slot. A reader that misses reads the primary line again.
 *
 * Each slot has a hint (table/hints.h), written before the word. The hints of sixteen lines share
 * a cache line. */
#pragma once
#include "core/clock.h"
#include "core/digest.h"
#include "lb/occupancy.h"
#include "table/hints.h"
#include "table/slots.h"

#define LINE_SLOTS 4

struct line {
	__u64 fingerprint[LINE_SLOTS];
	__u64 word[LINE_SLOTS];
};

enum hinted {
	HINTED_LINES = 16, /* lines that share a cache line of hints */
};

/* The hints of each of these lines: a byte a slot. */
struct hints {
	__u32 of[HINTED_LINES];
};

_Static_assert(sizeof(struct hints) == sizeof(struct line), "hints lie behind the lines");
_Static_assert(LINE_SLOTS == sizeof(__u32), "a hint is a byte");

/* The lines, and behind them their hints: both are adopted, or neither. Mapped, so that the
 * values begin on a page and a line is a cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2); /* set before loading, as `lines` */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct line);
} flows SEC(".maps");

const volatile __u32 lines = 1;

#define SEEN_SHIFT 28 /* of a tick: a quarter of a second; 16 bits wrap after five hours */
#define SEEN_MASK 0xffffULL

static __always_inline __u16 seen_now(void)
{
	return ticked_ns() >> SEEN_SHIFT;
}

#define DIGEST_SHIFT 21
#define DIGEST (~0ULL << DIGEST_SHIFT)

/* The bits of a word that this file reads; flow.h has all. Embryonic entries may be evicted. */
#define WORD_ESTABLISHED (1ULL << 14)
#define WORD_MOVING (1ULL << 15)

/* Lifetime of an embryonic entry: a SYN-ACK is retransmitted after 1, 3 and 7 s (RFC 6298 §5).
 * A flow without an entry is recovered. */
#define EMBRYONIC_TICKS (10000000000ULL >> SEEN_SHIFT)

#define exchange(at, now) __sync_lock_test_and_set(at, now)

static __always_inline __u64 fingerprint_of(__u64 hash)
{
	__u64 fp = hash & DIGEST;

	return fp ? fp : 1ULL << DIGEST_SHIFT;
}

static __always_inline bool same_fingerprint(__u64 a, __u64 b)
{
	return (a ^ b) < 1ULL << DIGEST_SHIFT;
}

#define FUTURE_AGE 0xff00 /* from here on: of an entry that was dated after the clock was read */

/* age_of returns the ticks since an entry was last seen. Another CPU may have dated it after
 * this CPU read its clock: then 0. */
static __always_inline __u16 age_of(__u64 fp, __u16 now)
{
	__u16 age = now - (__u16)fp;

	return age < FUTURE_AGE ? age : 0;
}

_Static_assert(MAX_AGE_S * 1000000000ULL >> SEEN_SHIFT < FUTURE_AGE, "MAX_AGE_S is beyond age_of");

/* embryonic_expired: the entry counts as absent, whether or not the sweep removed it. */
static __always_inline bool embryonic_expired(__u64 fp, __u64 word, __u16 now)
{
	return !(word & WORD_ESTABLISHED) && age_of(fp, now) >= EMBRYONIC_TICKS;
}

static __always_inline __u32 primary_line(__u64 hash)
{
	return primary_among(hash, DIGEST_SHIFT, lines);
}

static __always_inline __u32 alternate_line(__u32 line, __u64 fp)
{
	return alternate_among(line, fp >> DIGEST_SHIFT, lines);
}

static __always_inline struct line *line_at(__u32 i)
{
	return bpf_map_lookup_elem(&flows, &i);
}

/* hints_of returns the hints of a line. */
static __always_inline __u32 *hints_of(__u32 line)
{
	struct hints *h = (void *)line_at(lines + line / HINTED_LINES);

	return h ? &h->of[line % HINTED_LINES] : NULL;
}

/* set_hint writes the hint of a slot that this CPU owns. */
static __always_inline void set_hint(__u32 line, __u32 i, __u8 hint)
{
	write_hint(hints_of(line), i % LINE_SLOTS, hint);
}

/* is_hinted: a flow may have an entry. False: it has none. The primary line's hints are read
 * again, as an entry may have moved there meanwhile. */
static __always_inline bool is_hinted(__u64 hash)
{
	__u64 fp = fingerprint_of(hash), first, second;
	__u32 primary = primary_line(hash);
	__u32 *one = hints_of(primary), *other = hints_of(alternate_line(primary, fp));

	if (!one || !other)
		return true;
	first = READ_ONCE(*one);
	stall();
	second = (__u64)READ_ONCE(*other) << 32;
	stall();
	return is_among(first | second, fp) | is_among(READ_ONCE(*one) | second, fp);
}

/* fetch_hints has the hints of a flow's primary line come from memory, if they are not there: a
 * later change of a slot would wait for them. */
static __always_inline void fetch_hints(__u64 hash)
{
	const __u32 *hints = hints_of(primary_line(hash));

	if (hints)
		READ_ONCE(*hints);
}

/* search_line returns the word of a flow in a line, or 0. With touch it dates an established
 * entry; dated, unless it is NULL, is then 1 if that had another date. */
static __always_inline __u64 search_line(struct line *l, __u64 fp, __u16 now, bool touch,
					 __u32 *dated)
{
	__u64 word, was;

#pragma unroll
	for (int i = 0; i < LINE_SLOTS; i++) {
		was = READ_ONCE(l->fingerprint[i]);
		if (!same_fingerprint(was, fp))
			continue;
		word = READ_ONCE(l->word[i]);
		if (!word || !same_fingerprint(READ_ONCE(l->fingerprint[i]), fp) ||
		    embryonic_expired(was, word, now))
			continue;
		if (touch && word & WORD_ESTABLISHED && (__u16)was != now) {
			*(volatile __u16 *)&l->fingerprint[i] = now; /* the low half */
			if (dated)
				*dated = 1;
		}
		return word;
	}
	return 0;
}

/* flow_find returns the word of a flow, or 0. With touch it dates an established entry.
 * Functions here are noinline so that the verifier looks at each once. */
__noinline __u64 flow_find(__u64 hash, bool touch)
{
	__u64 fp = fingerprint_of(hash), first, second, again, displaced;
	__u32 primary = primary_line(hash);
	struct line *l = line_at(primary), *away;
	__u16 now = seen_now();

	if (!l)
		return 0;
	displaced = READ_ONCE(l->fingerprint[0]);
	first = search_line(l, fp, now, touch, NULL);
	if (first && !(first & WORD_MOVING))
		return first;
	if (!first && !((displaced | READ_ONCE(l->fingerprint[0])) & DISPLACED))
		return 0;
	away = line_at(alternate_line(primary, fp));
	if (!away)
		return 0;
	stall();
	second = search_line(away, fp, now, touch, NULL);
	if (second && !(second & WORD_MOVING))
		return second;
	again = search_line(l, fp, now, touch, NULL);
	if (again && !(again & WORD_MOVING))
		return again;
	return (first ? first : second) & ~WORD_MOVING;
}

/* flow_find_inline is flow_find without a call where the primary line decides, which may set dated
 * (search_line). */
static __always_inline __u64 flow_find_inline(__u64 hash, bool touch, __u32 *dated)
{
	struct line *l = line_at(primary_line(hash));
	__u64 displaced, word;

	if (!l)
		return 0;
	displaced = READ_ONCE(l->fingerprint[0]);
	word = search_line(l, fingerprint_of(hash), seen_now(), touch, dated);
	if (word && !(word & WORD_MOVING))
		return word;
	if (!word && !((displaced | READ_ONCE(l->fingerprint[0])) & DISPLACED))
		return 0;
	return flow_find(hash, touch);
}

/* flow_seek_inline is flow_find for a flow that seldom has an entry. */
static __always_inline __u64 flow_seek_inline(__u64 hash)
{
	return is_hinted(hash) ? flow_find(hash, false) : 0;
}

__noinline __u64 flow_seek(__u64 hash)
{
	return flow_seek_inline(hash);
}

/* age_in returns the ticks since an entry with this word was last seen, or 0 if the line has
 * none. */
static __always_inline __u16 age_in(const struct line *l, __u64 fp, __u64 word, __u16 now)
{
	__u64 was;

#pragma unroll
	for (int i = 0; l && i < LINE_SLOTS; i++) {
		was = READ_ONCE(l->fingerprint[i]);
		if (same_fingerprint(was, fp) && READ_ONCE(l->word[i]) == word)
			return age_of(was, now);
	}
	return 0;
}

/* flow_age returns the ticks since a flow's entry, with this word, was last seen, or 0 if there
 * is none. */
__noinline __u32 flow_age(__u64 hash, __u64 word)
{
	__u64 fp = fingerprint_of(hash);
	__u32 primary = primary_line(hash);
	__u16 now = seen_now();
	__u16 age = age_in(line_at(primary), fp, word, now);

	return age ?: age_in(line_at(alternate_line(primary, fp)), fp, word, now);
}

/* count_displaced counts an entry of this primary line as displaced. Returns false if the count
 * is at its limit or changes all the time. */
__noinline bool count_displaced(__u32 line)
{
	struct line *l = line_at(line);

	return displaced_inc(l ? l->fingerprint : NULL);
}

static __always_inline void uncount_displaced(__u32 line)
{
	struct line *l = line_at(line);

	if (l)
		displaced_dec(l->fingerprint);
}

/* free_slot frees a slot with word 0. */
static __always_inline void free_slot(__u32 line, struct line *l, __u32 i)
{
	__u64 was;

	set_hint(line, i, 0);
	was = slot_free(&l->fingerprint[i]);
	if (was & IN_ALTERNATE)
		uncount_displaced(alternate_line(line, was));
}

/* release_slot is free_slot as a function, where the chain of calls has room for it. */
__noinline int release_slot(__u32 line, __u32 i)
{
	struct line *l = line_at(line);

	if (l)
		free_slot(line, l, i & (LINE_SLOTS - 1));
	return 0;
}

/* change_in_line replaces a flow's word in a line; a fresh word of 0 removes the entry. */
static __always_inline bool change_in_line(__u32 line, __u64 fp, __u64 word, __u64 fresh)
{
	struct line *l = line_at(line);
	__u16 now = seen_now();

	if (!l)
		return false;
#pragma unroll
	for (int i = 0; i < LINE_SLOTS; i++) {
		if (!same_fingerprint(READ_ONCE(l->fingerprint[i]), fp) ||
		    READ_ONCE(l->word[i]) != word)
			continue;
		stall();
		*(volatile __u16 *)&l->fingerprint[i] =
			now; /* before the word: the sweep reads the word first */
		if (!compare_and_swap(&l->word[i], word, fresh))
			continue;
		if (!fresh)
			release_slot(line, i);
		return true;
	}
	return false;
}

#define MAX_TRIES 16 /* of a change that other CPUs prevent */

static long do_nothing(__u64 i, void *unused)
{
	return 0;
}

/* pause_before waits before the next try of a change, twice as long each time: another CPU is
 * between two steps of its own, as it moves the entry. All waits together end after a fraction of
 * a millisecond, as that CPU may be a CPU that the hypervisor has stopped. */
__noinline int pause_before(__u32 tried)
{
	bpf_loop(1U << (tried % MAX_TRIES), do_nothing, NULL, 0);
	return 0;
}

/* flow_swap replaces the word of a flow and dates the entry; a fresh word of 0 removes it. Returns
 * false if the word changed since flow_find. */
static __always_inline bool flow_swap(__u64 hash, __u64 word, __u64 fresh)
{
	__u64 fp = fingerprint_of(hash);
	__u32 primary = primary_line(hash);

	return change_in_line(primary, fp, word, fresh) ||
	       change_in_line(alternate_line(primary, fp), fp, word, fresh);
}

/* flow_change is flow_swap that counts the change. */
__noinline bool flow_change(__u64 hash, __u64 word, __u64 fresh)
{
	if (!flow_swap(hash, word, fresh))
		return false;
	tally_change(word, fresh);
	return true;
}
