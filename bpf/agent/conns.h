/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* conns.h: the agent's table of flows, shared by all CPUs, without locks. A set is
 * eight places, and a cache line of marks that tells who is there:
 *
 *   mark  digest 42 | strays 4 | away 1 | proved 1 | seen 16 (in 2^20 ns, a minute around)
 *                which flow; its client has proved to be there. The first mark of a set
 *                also counts the entries that have their home there and are in their
 *                other set, where they are `away`
 *
 * A flow's entry is in its home set or, if that had no free place, in the other one, which
 * the digest and either of them give; it never moves. Nobody looks at the other one while
 * the home counts no strays. A newcomer takes a free place of either set, or that of the
 * opening (a flow not proved) which was not seen for longest: no flood of openings costs a
 * proved flow its place.
 *
 * A mark without a digest is free. Who takes a place swaps its mark for TAKING, writes the
 * flow and what is known of it, and then turns the mark into the flow's. (Without a
 * barrier: what follows of a flow does so after its opening is delivered.) The digest is of
 * a key that outlives the agent with the table, so nobody can aim at a set; the flow itself
 * is compared, so nobody is taken for another. Two CPUs that take the same opening at once
 * make two entries; all see the same one of them first, and the other runs out. */
#pragma once
#include "core/clock.h"
#include "core/digest.h"
#include "packet/parse.h"
#include "core/stall.h"

#define PLACES 8 /* of a set; a power of two, so that an index can be masked */

struct place {
	struct tuple t;
	struct conn c;
};

struct conn_set {
	__u64 mark[PLACES];
	struct place place[PLACES];
};

/* Mapped, so that the values begin on a page and marks are one cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading, as `conn_sets` */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct conn_set);
} conns SEC(".maps");

/* Where the next agent finds the key of the digests, which is `flow_key` here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct digest_key);
} conn_key SEC(".maps");

const volatile __u32 conn_sets = 1;

#define PROVED (1ULL << 16)
#define AWAY (1ULL << 17)
#define STRAY (1ULL << 18) /* one of them */
#define STRAYS (15 * STRAY)
#define DIGEST_SHIFT 22
#define TAKING (~0ULL << DIGEST_SHIFT)

static __always_inline __u64 mark_of(__u64 hash)
{
	__u64 mark = hash & TAKING;

	return mark && mark != TAKING ? mark : 1ULL << DIGEST_SHIFT;
}

static __always_inline __u16 seen_at(__u64 now)
{
	return now >> 20;
}

static __always_inline __u32 home_of(__u64 hash)
{
	return primary_among(hash, DIGEST_SHIFT, conn_sets);
}

static __always_inline __u32 other_of(__u32 set, __u64 mark)
{
	return alternate_among(set, mark >> DIGEST_SHIFT, conn_sets);
}

static __always_inline struct conn_set *set_at(__u32 i)
{
	return bpf_map_lookup_elem(&conns, &i);
}

/* no_digest is 1 for a mark without one, else 0: a free mark, or the difference of two
 * of one digest. Without a branch, as the verifier goes every way of one. */
static __always_inline __u64 no_digest(__u64 mark)
{
	mark = (mark >> DIGEST_SHIFT) - 1;
	asm volatile("%0 >>= 63" : "+r"(mark));
	return mark;
}

/* places_of is the places of a set whose marks have this one's digest, a bit each; of
 * 0 the free ones. No step waits for the one before. */
static __always_inline __u64 places_of(const struct conn_set *s, __u64 mark)
{
	__u64 places = 0;

	for (int i = 0; i < PLACES; i++)
		places |= no_digest(READ_ONCE(s->mark[i]) ^ mark) << i;
	return places;
}

/* first_of returns which the lowest of these places is, by a de Bruijn sequence of 8 bits. */
static __always_inline __u64 first_of(__u64 places)
{
	__u64 low = places & -places;

	return 0x34572610 >> (low * 0x1d >> 5 & 7) * 4 & 7;
}

static __always_inline bool same_flow(const struct tuple *a, const struct tuple *b)
{
	const __u64 *v = (const void *)a, *w = (const void *)b;
	__u64 differ = 0;

	for (int i = 0; i < (int)sizeof(*a) / 8; i++)
		differ |= v[i] ^ w[i];
	return !differ;
}

/* Where an entry is: its place in its set, IN_OTHER if that is not its home, and
 * IS_PROVED. Negative: nowhere. */
#define IN_OTHER PLACES
#define IS_PROVED (2 * PLACES)

/* find_in looks for a flow in one set, and dates it. */
static __always_inline int find_in(struct conn_set *s, const struct tuple *t, __u64 mark, __u64 now)
{
	__u64 at = places_of(s, mark), was;

	if (!at)
		return -1;
	at = first_of(at);
	if (!same_flow(&s->place[at].t, t))
		return -1;
	was = READ_ONCE(s->mark[at]);
	if ((__u16)was != seen_at(now))
		*(volatile __u16 *)&s->mark[at] = seen_at(now); /* the low half */
	return at | (was & PROVED ? IS_PROVED : 0);
}

/* find_away is find_in for a flow's other set. This and all below that say __noinline are
 * functions of their own, so that the verifier looks at each once; hence the tests for
 * NULL, which never is. */
__noinline int find_away(const struct tuple *t, __u64 hash, __u64 now)
{
	__u64 mark = mark_of(hash);
	struct conn_set *s = set_at(other_of(home_of(hash), mark));
	int at;

	if (!s || !t)
		return -1;
	at = find_in(s, t, mark, now);
	return at < 0 ? at : at | IN_OTHER;
}

/* find_place returns where the entry of a flow with this digest is. */
__noinline int find_place(const struct tuple *t, __u64 hash, __u64 now)
{
	struct conn_set *s = set_at(home_of(hash));
	int at;

	if (!s || !t)
		return -1;
	at = find_in(s, t, mark_of(hash), now);
	return at < 0 && READ_ONCE(s->mark[0]) & STRAYS ? find_away(t, hash, now) : at;
}

static __always_inline __u32 set_of(__u64 hash, int at)
{
	__u32 home = home_of(hash);

	return at & IN_OTHER ? other_of(home, mark_of(hash)) : home;
}

/* conn_at returns the entry of a flow that is there. */
static __always_inline struct conn *conn_at(__u64 hash, int at)
{
	struct conn_set *s = set_at(set_of(hash, at));
	__u64 i = at;

	if (!s)
		return NULL;
	asm volatile("%0 &= %1" : "+r"(i) : "i"(PLACES - 1)); /* the verifier has not seen it */
	return &s->place[i].c;
}

#define TRIES 4 /* at a mark that others date meanwhile */

/* count_stray counts one more in a set; false: others change the count all the time. As
 * many as can be counted stay for ever. */
__noinline bool count_stray(__u32 set)
{
	struct conn_set *s = set_at(set);
	__u64 was;

	for (int i = 0; s && i < TRIES; i++) {
		was = READ_ONCE(s->mark[0]);
		if ((was & STRAYS) == STRAYS || compare_and_swap(&s->mark[0], was, was + STRAY))
			return true;
	}
	return false;
}

/* uncount_stray may fail: then somebody looks in vain. */
__noinline int uncount_stray(__u32 set)
{
	struct conn_set *s = set_at(set);
	__u64 was;

	for (int i = 0; s && i < TRIES; i++) {
		was = READ_ONCE(s->mark[0]);
		if ((was & STRAYS) == STRAYS || compare_and_swap(&s->mark[0], was, was - STRAY))
			break;
	}
	return 0;
}

/* vacate frees a place whose mark is still what it was, or takes it for another flow. */
static __always_inline bool vacate(__u32 set, struct conn_set *s, __u32 i, __u64 was, __u64 to)
{
	if (!compare_and_swap(&s->mark[i], was, to | (was & STRAYS)))
		return false;
	if (was & AWAY)
		uncount_stray(other_of(set, was));
	return true;
}

#define FREE_RANK (1ULL << 17)
#define OPENING_RANK (1ULL << 16)
#define STALE_RANK (OPENING_RANK | 1000) /* an opening not seen for a second */

/* larger_of is the larger of two numbers below 2^63, without a branch. */
static __always_inline __u64 larger_of(__u64 a, __u64 b)
{
	__u64 less = a - b;

	asm volatile("%0 s>>= 63" : "+r"(less));
	return a + ((b - a) & less);
}

/* rank_of is how gladly an opening's place is taken, 0 for any other; which place is in
 * the last three bits. */
static __always_inline __u64 rank_of(const struct conn_set *s, __u64 i, __u16 now)
{
	__u64 was = READ_ONCE(s->mark[i]), rank = (OPENING_RANK | (__u16)(now - was)) * PLACES | i;

	return rank * (((was / PROVED & 1) | no_digest(~was)) ^ 1);
}

static __always_inline __u64 best_of_four(const struct conn_set *s, __u64 i, __u16 now)
{
	return larger_of(larger_of(rank_of(s, i, now), rank_of(s, i + 1, now)),
			 larger_of(rank_of(s, i + 2, now), rank_of(s, i + 3, now)));
}

/* best_in ranks the places of a set for a newcomer: a free one, or that of the opening
 * that was not seen for longest. */
__noinline int best_in(__u32 set, __u64 now)
{
	struct conn_set *s = set_at(set);
	__u64 free;

	if (!s)
		return 0;
	free = places_of(s, 0);
	if (free)
		return FREE_RANK * PLACES | first_of(free);
	return larger_of(best_of_four(s, 0, seen_at(now)), best_of_four(s, 4, seen_at(now)));
}

/* place_for says where a newcomer goes, as find_place does, or that there is none. In a
 * flood openings stay in their home sets, and one look finds them. */
static __always_inline int place_for(__u64 hash, __u64 now)
{
	__u32 home = home_of(hash), other = other_of(home, mark_of(hash));
	int first = best_in(home, now), second;

	if (first >= (int)STALE_RANK * PLACES)
		return first & (PLACES - 1);
	second = other == home ? 0 : best_in(other, now);
	if (second < (int)FREE_RANK * PLACES && first >= (int)OPENING_RANK * PLACES)
		return first & (PLACES - 1);
	return second < (int)OPENING_RANK * PLACES ? -1 : (second & (PLACES - 1)) | IN_OTHER;
}

/* conn_put makes the entry of a flow, PROVED or not, in place of its old one at `at`, if
 * that is not negative; returns where it is. Negative: there is no place, or another CPU
 * is at it. */
__noinline int conn_put(const struct tuple *t, __u64 hash, const struct conn *c, int at, __u64 proved)
{
	__u64 mark = mark_of(hash), was;
	struct conn_set *s;
	__u32 set, i;

	if (!t || !c)
		return -1;
	if (at < 0)
		at = place_for(hash, c->seen_ns);
	if (at < 0)
		return -1;
	set = set_of(hash, at);
	s = set_at(set);
	if (!s || (at & IN_OTHER && !count_stray(home_of(hash))))
		return -1;
	i = at & (PLACES - 1);
	stall();
	was = READ_ONCE(s->mark[i]);
	if (was >= TAKING || (was & PROVED && !no_digest(was ^ mark)) || !vacate(set, s, i, was, TAKING)) {
		if (at & IN_OTHER)
			uncount_stray(home_of(hash));
		return -1;
	}
	s->place[i].t = *t;
	stall();
	s->place[i].c = *c;
	mark |= seen_at(c->seen_ns) | proved | (at & IN_OTHER ? AWAY : 0);
	if (i) /* no atomic: it would wait for the place's memory */
		*(volatile __u64 *)&s->mark[i] = mark;
	else
		__sync_fetch_and_xor(&s->mark[0], TAKING ^ mark);
	return (at & (2 * PLACES - 1)) | (proved ? IS_PROVED : 0);
}

/* alter makes the mark of a flow's entry another one, by or-ing `bits`, or frees its
 * place, if there are none. False: it is so already, or no longer there. */
__noinline bool alter(__u64 hash, int at, __u64 bits)
{
	__u32 set = set_of(hash, at), i = at & (PLACES - 1);
	struct conn_set *s = set_at(set);
	__u64 was;

	if (!s)
		return false;
	for (int k = 0; k < TRIES; k++) {
		was = READ_ONCE(s->mark[i]);
		if (!no_digest(was ^ mark_of(hash)) || (bits && (was & bits) == bits))
			return false;
		if (bits ? compare_and_swap(&s->mark[i], was, was | bits) : vacate(set, s, i, was, 0))
			return true;
	}
	return false;
}
