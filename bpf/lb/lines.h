/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* lines.h: the table of flows, shared by all CPUs, without locks. A line is one
 * cache line: four entries, each a mark and a word.
 *
 *   mark  digest 43 | away 1 | strays 4 | seen 16
 *                which flow; in its other line; when it was last seen. The first mark
 *                of a line also counts the entries that have their home there and are
 *                in their other line
 *   word  flow.h what is known of it; 0: nothing (yet, or any more)
 *
 * A flow's entry is in its home line or in the other one, which the mark and
 * either of them give, so that an entry can move. Nobody looks at the other one while
 * the home line counts no strays: who puts an entry there counts first.
 *
 * A mark without a digest is free. Who takes a free one (compare-and-swap) owns it
 * until it writes the word. From then on the word is the truth: whatever changes or
 * removes the entry swaps that one word, and fails if another CPU came before. `seen`
 * is stored without that: at worst it dates another flow's entry.
 *
 * Who moves an entry marks its word (WORD_MOVES, then nobody changes it), writes
 * the new place, and only then empties the old one; a reader that misses looks at
 * the home line again. */
#pragma once
#include "core/clock.h"
#include "core/digest.h"
#include "core/stall.h"

#define LINE_ENTRIES 4

struct line {
	__u64 mark[LINE_ENTRIES];
	__u64 word[LINE_ENTRIES];
};

/* Mapped, so that the values begin on a page and a line is a cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading, as `lines` */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct line);
} flows SEC(".maps");

const volatile __u32 lines = 1;

#define SEEN_BITS 16
#define SEEN_SHIFT 28 /* in 2^28 ns: a quarter of a second, five hours around */
#define SEEN_MASK 0xffffULL

static __always_inline __u16 seen_now(void)
{
	return ticked_ns() >> SEEN_SHIFT;
}

#define STRAY (1ULL << SEEN_BITS) /* one of them */
#define STRAYS (15 * STRAY)
#define AWAY (1ULL << 20)
#define DIGEST_SHIFT 21
#define DIGEST (~0ULL << DIGEST_SHIFT)

/* Bits of every word; the others are flow.h's. An embryo gives way. */
#define WORD_FLOW (1ULL << 14)
#define WORD_MOVES (1ULL << 15)

/* How long an embryo may wait, in units of `seen`: a SYN-ACK is retransmitted
 * after 1, 3 and 7 s (RFC 6298 §5); later the flow is recovered. */
#define EMBRYONIC (10000000000ULL >> SEEN_SHIFT)

#define swap(at, now) __sync_lock_test_and_set(at, now)

static __always_inline __u64 mark_of(__u64 hash)
{
	__u64 mark = hash & DIGEST;

	return mark ? mark : 1ULL << DIGEST_SHIFT;
}

static __always_inline bool same_mark(__u64 a, __u64 b)
{
	return (a ^ b) < 1ULL << DIGEST_SHIFT;
}

static __always_inline bool is_free(__u64 mark)
{
	return mark < AWAY;
}

/* age_of is how long an entry has not been seen, in units of `seen`. Another CPU may
 * date it after this one has looked at the clock. */
static __always_inline __u16 age_of(__u64 mark, __u16 now)
{
	__u16 age = now - (__u16)mark;

	return age < 0xff00 ? age : 0;
}

/* expired tells an embryo that has waited too long: it counts as none. */
static __always_inline bool expired(__u64 mark, __u64 word, __u16 now)
{
	return !(word & WORD_FLOW) && age_of(mark, now) >= EMBRYONIC;
}

static __always_inline __u32 home_of(__u64 hash)
{
	return home_among(hash, DIGEST_SHIFT, lines);
}

static __always_inline __u32 other_of(__u32 line, __u64 mark)
{
	return other_among(line, mark >> DIGEST_SHIFT, lines);
}

static __always_inline struct line *line_at(__u32 i)
{
	return bpf_map_lookup_elem(&flows, &i);
}

/* look returns the word of a flow in one line, or 0; touch dates it. */
static __always_inline __u64 look(struct line *l, __u64 mark, __u16 now, bool touch)
{
	__u64 word, was;

#pragma unroll
	for (int i = 0; i < LINE_ENTRIES; i++) {
		was = peek(l->mark[i]);
		if (!same_mark(was, mark))
			continue;
		word = peek(l->word[i]);
		if (!word || !same_mark(peek(l->mark[i]), mark) || expired(was, word, now))
			continue;
		if (touch && word & WORD_FLOW && (__u16)was != now)
			*(volatile __u16 *)&l->mark[i] = now; /* the low half */
		return word;
	}
	return 0;
}

/* find returns what is known of a flow, or 0; touch dates it, if it is
 * established. A function of its own for the verifier, as all below. */
__noinline __u64 find(__u64 hash, bool touch)
{
	__u64 mark = mark_of(hash), first, second, again, strays;
	__u32 home = home_of(hash);
	struct line *l = line_at(home), *o;
	__u16 now = seen_now();

	if (!l)
		return 0;
	strays = peek(l->mark[0]);
	first = look(l, mark, now, touch);
	if (first && !(first & WORD_MOVES))
		return first;
	if (!first && !((strays | peek(l->mark[0])) & STRAYS))
		return 0;
	o = line_at(other_of(home, mark));
	if (!o)
		return 0;
	stall();
	second = look(o, mark, now, touch);
	if (second && !(second & WORD_MOVES))
		return second;
	again = look(l, mark, now, touch);
	if (again && !(again & WORD_MOVES))
		return again;
	return (first ? first : second) & ~WORD_MOVES;
}

/* find_near is find, which calls nobody where the home line says all. */
static __always_inline __u64 find_near(__u64 hash, bool touch)
{
	struct line *l = line_at(home_of(hash));
	__u64 strays, word;

	if (!l)
		return 0;
	strays = peek(l->mark[0]);
	word = look(l, mark_of(hash), seen_now(), touch);
	if (word && !(word & WORD_MOVES))
		return word;
	if (!word && !((strays | peek(l->mark[0])) & STRAYS))
		return 0;
	return find(hash, touch);
}

/* count_stray counts one more in a line; false: they are as many as can be, or others
 * date the entry and count all the time. */
__noinline bool count_stray(__u32 line)
{
	struct line *l = line_at(line);
	__u64 was;

	for (int i = 0; l && i < 4; i++) {
		was = peek(l->mark[0]);
		if ((was & STRAYS) == STRAYS)
			return false;
		if (swap_if(&l->mark[0], was, was + STRAY))
			return true;
	}
	return false;
}

static __always_inline void uncount_stray(__u32 line)
{
	struct line *l = line_at(line);

	if (l)
		__sync_fetch_and_sub(&l->mark[0], STRAY);
}

/* vacate frees an entry whose word is 0. */
static __always_inline void vacate(__u32 line, struct line *l, __u32 i)
{
	__u64 was = __sync_fetch_and_and(&l->mark[i], STRAYS);

	if (was & AWAY)
		uncount_stray(other_of(line, was));
}

/* release is vacate as a function of its own, where calls are not too deep for it. */
__noinline int release(__u32 line, __u32 i)
{
	struct line *l = line_at(line);

	if (l)
		vacate(line, l, i & (LINE_ENTRIES - 1));
	return 0;
}

/* change_in swaps a flow's word in one line. 0 as `fresh` removes it. */
static __always_inline bool change_in(__u32 line, __u64 mark, __u64 word, __u64 fresh)
{
	struct line *l = line_at(line);
	__u16 now = seen_now();

	if (!l)
		return false;
#pragma unroll
	for (int i = 0; i < LINE_ENTRIES; i++) {
		if (!same_mark(peek(l->mark[i]), mark) || peek(l->word[i]) != word)
			continue;
		stall();
		*(volatile __u16 *)&l->mark[i] = now; /* first, for the sweep */
		if (!swap_if(&l->word[i], word, fresh))
			continue;
		if (!fresh)
			release(line, i);
		return true;
	}
	return false;
}

/* change makes what is known of a flow another word, and dates it; 0 removes it.
 * False: it is no longer as find said. */
__noinline bool change(__u64 hash, __u64 word, __u64 fresh)
{
	__u64 mark = mark_of(hash);
	__u32 home = home_of(hash);

	return change_in(home, mark, word, fresh) || change_in(other_of(home, mark), mark, word, fresh);
}
