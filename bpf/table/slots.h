/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* slots.h: the slots of a line in a table of two choices, shared by all CPUs without
 * locks. Each slot has a fingerprint of 64 bits:
 *
 *   digest | bits of the table's owner | in alternate 1 | displaced 4 | seen 16
 *
 *   seen          when the entry was last seen, in the owner's unit
 *   displaced     in a line's first fingerprint: how many entries have their primary
 *                 line here and are in their alternate line. A reader skips the
 *                 alternate line while it is 0, so a writer counts before it puts an
 *                 entry there and uncounts after it removed the entry
 *   in alternate  the line is the entry's alternate line
 *   digest        which flow; 0 with `in alternate` 0: the slot is free
 *
 * A CPU takes a free slot by compare-and-swap. The owner's record of the entry
 * lies beside the fingerprints and decides when the entry becomes visible. */
#pragma once
#include "core/stall.h"
#include "table/address.h"

#define SEEN_BITS 16
#define ONE_DISPLACED (1ULL << SEEN_BITS)
#define DISPLACED (15 * ONE_DISPLACED)
#define IN_ALTERNATE (1ULL << 20)

static __always_inline bool is_free(__u64 fp)
{
	return fp < IN_ALTERNATE;
}

#define DISPLACED_TRIES 4 /* while other CPUs date the entry in the same fingerprint */

/* displaced_inc counts an entry in the first fingerprint of its primary line. Returns
 * false if the count is at its limit or changes all the time. */
static __always_inline bool displaced_inc(__u64 *first)
{
	__u64 was;

	for (int i = 0; first && i < DISPLACED_TRIES; i++) {
		was = READ_ONCE(*first);
		if ((was & DISPLACED) == DISPLACED)
			return false;
		if (compare_and_swap(first, was, was + ONE_DISPLACED))
			return true;
	}
	return false;
}

static __always_inline void displaced_dec(__u64 *first)
{
	__sync_fetch_and_sub(first, ONE_DISPLACED);
}

/* slot_claim takes a free slot of a line of n for a fingerprint: 0 to n - 1, or n. */
static __always_inline __u32 slot_claim(__u64 *slot, __u32 n, __u64 fp)
{
	__u64 was;
	__u32 i;

#pragma unroll
	for (i = 0; i < n; i++) {
		was = READ_ONCE(slot[i]);
		if (is_free(was) && compare_and_swap(&slot[i], was, fp | (was & DISPLACED)))
			break;
	}
	return i;
}

/* slot_free frees a slot and returns its fingerprint of before; the count of displaced
 * entries stays. */
static __always_inline __u64 slot_free(__u64 *slot)
{
	return __sync_fetch_and_and(slot, DISPLACED);
}

/* larger_of is the larger of two numbers below 2^63, without a branch. */
static __always_inline __u64 larger_of(__u64 a, __u64 b)
{
	__u64 less = a - b;

	asm volatile("%0 s>>= 63" : "+r"(less));
	return a + ((b - a) & less);
}

/* is_less is 1 if a is less than b, else 0; without a branch: the verifier follows both ways.
 * Both are below 2^63. */
static __always_inline __u64 is_less(__u64 a, __u64 b)
{
	a -= b;
	asm volatile("%0 >>= 63" : "+r"(a));
	return a;
}
