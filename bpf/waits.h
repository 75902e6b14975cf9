/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* waits.h: the offers that were accepted, until the client's next packet. A flow
 * has its place in one set of eight, which its digest gives; a newcomer takes the
 * place of the one that was not seen for longest. One cache line of marks tells
 * who is there, and each place has the flow and its entry:
 *
 *   mark  digest 48 | seen 16 (in 2^20 ns, a minute around); 0: free
 *
 * Who takes a place swaps its mark for TAKING, writes, and then writes the mark.
 * (Without a barrier: what follows of a flow does so after its opening is delivered.)
 * The digest is of a key that outlives the agent with the table, so nobody can
 * aim at a set; the flow itself is compared, so nobody is taken for another. */
#pragma once
#include "clock.h"
#include "digest.h"
#include "parse.h"
#include "stall.h"

#define PLACES 8 /* of a set; a power of two, so that an index can be masked */

struct wait {
	struct tuple t;
	struct conn c;
};

struct wait_set {
	__u64 mark[PLACES];
	struct wait place[PLACES];
};

/* Mapped, so that the values begin on a page and marks are one cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading, as `wait_sets` */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct wait_set);
} waits SEC(".maps");

/* Where the next agent finds the key of the digests, which is `flow_key` here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct digest_key);
} wait_key SEC(".maps");

const volatile __u32 wait_sets = 1;

#define MARK_SHIFT 16
#define TAKING (~0ULL << MARK_SHIFT)

static __always_inline __u64 mark_of(__u64 hash)
{
	__u64 mark = hash & TAKING;

	return mark && mark != TAKING ? mark : 1ULL << MARK_SHIFT;
}

static __always_inline __u16 seen_at(__u64 now)
{
	return now >> 20;
}

/* set_of takes the bits that marks do not hold first. */
static __always_inline struct wait_set *set_of(__u64 hash)
{
	__u32 at = (__u64)(__u32)(hash << 16 | hash >> 48) * wait_sets >> 32;

	return bpf_map_lookup_elem(&waits, &at);
}

/* is_none is 1 for a mark of 0 and any date, else 0. Without a branch, as the verifier
 * goes every way of one. */
static __always_inline __u64 is_none(__u64 mark)
{
	mark = (mark >> MARK_SHIFT) - 1;
	asm volatile("%0 >>= 63" : "+r"(mark));
	return mark;
}

static __always_inline bool same_flow(const struct tuple *a, const struct tuple *b)
{
	const __u64 *v = (const void *)a, *w = (const void *)b;
	__u64 differ = 0;

	for (int i = 0; i < (int)sizeof(*a) / 8; i++)
		differ |= v[i] ^ w[i];
	return !differ;
}

/* find_wait returns the place of a flow with this digest in its set, and dates it;
 * or a negative number. This, wait_put and wait_remove are functions of their own,
 * so that the verifier looks at each once; hence the tests for NULL, which never is. */
__noinline int find_wait(const struct tuple *t, __u64 hash, __u64 now)
{
	struct wait_set *s = set_of(hash);
	__u64 mark = mark_of(hash), at = 0;

	if (!s || !t)
		return -1;
	for (__u64 i = 0; i < PLACES; i++)
		at += (PLACES + i - at) * is_none(s->mark[i] ^ mark);
	if (!at)
		return -1;
	at &= PLACES - 1;
	if (!same_flow(&s->place[at].t, t))
		return -1;
	if ((__u16)s->mark[at] != seen_at(now))
		*(volatile __u16 *)&s->mark[at] = seen_at(now); /* the low half */
	return at;
}

/* wait_find returns the entry of a flow with this digest, or NULL. */
static __always_inline struct conn *wait_find(const struct tuple *t, __u64 hash, __u64 now)
{
	__s64 at = find_wait(t, hash, now);
	struct wait_set *s;

	if (at < 0)
		return NULL;
	asm volatile("%0 &= %1" : "+r"(at) : "i"(PLACES - 1)); /* the verifier has not seen it */
	s = set_of(hash);
	return s ? &s->place[at].c : NULL;
}

/* place_for is where a flow comes: where it is, or where nobody is, or who was not
 * seen for longest. */
static __always_inline __u64 place_for(const struct wait_set *s, __u64 mark, __u64 now)
{
	__u64 best = 0;

	for (__u64 i = 0; i < PLACES; i++) {
		__u64 was = s->mark[i];
		__u64 rank = is_none(was ^ mark) << 17 | is_none(was) << 16;
		__u64 less;

		rank = (rank | (__u16)(seen_at(now) - was)) * PLACES | i;
		less = best - rank;
		asm volatile("%0 >>= 63" : "+r"(less));
		best += (rank - best) * less;
	}
	return best & (PLACES - 1);
}

/* wait_put makes the entry of a flow. False: another CPU is at its place. */
__noinline bool wait_put(const struct tuple *t, __u64 hash, const struct conn *c)
{
	struct wait_set *s = set_of(hash);
	__u64 mark = mark_of(hash), at, was;

	if (!s || !t || !c)
		return false;
	mark |= seen_at(c->seen_ns);
	at = place_for(s, mark, c->seen_ns);
	was = s->mark[at];
	if (was >= TAKING || __sync_val_compare_and_swap(&s->mark[at], was, TAKING) != was)
		return false;
	s->place[at].t = *t;
	stall();
	s->place[at].c = *c;
	*(volatile __u64 *)&s->mark[at] = mark;
	return true;
}

/* wait_remove: two CPUs that took the same opening at once may have made two. */
__noinline int wait_remove(__u64 hash)
{
	struct wait_set *s = set_of(hash);
	__u64 mark = mark_of(hash);

	if (!s)
		return 0;
	for (int i = 0; i < PLACES; i++) {
		__u64 was = s->mark[i];

		if (is_none(was ^ mark))
			__sync_val_compare_and_swap(&s->mark[i], was, 0);
	}
	return 0;
}
