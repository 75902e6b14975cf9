/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* count.h: sockets and tasks are counted, each at most once.
 *
 * A socket or task remembers the count that has it. It moves to another count by an exchange of
 * that word, so each count stays right however many CPUs, or agents in a takeover, see the
 * cause. The word of several requests has their number, less one, above the count. A recount
 * changes the turn, moves each socket and task that there is to the counts
 * of the new turn, and sets those of the old turn to 0: a rest there was an error, as of a
 * socket that is gone. */
#pragma once
#include "work/works.h"

/* The number of recounts; its parity is that of the count of a term in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} work_turn SEC(".maps");

static __always_inline __u32 turn_now(void)
{
	__u32 zero = 0;
	const volatile __u64 *turn = bpf_map_lookup_elem(&work_turn, &zero);

	return turn ? *turn : 0;
}

#define UNCOUNTED 0
#define NUMBER_SHIFT 16 /* counts are fewer: MAX_OFFERINGS services have 16 each */

/* count_of names the count of a service's term; `service` is one more than its number. */
static __always_inline __u32 count_of(__u32 service, enum work_term term)
{
	return service * 2 * WORK_TERMS + (turn_now() & 1) * WORK_TERMS + term;
}

/* several is a count that has n requests, which may be below 0. */
static __always_inline __u32 several(__u32 count, __s32 n)
{
	return count | (__u32)(n - 1) << NUMBER_SHIFT;
}

static __always_inline __s32 number_of(__u32 counted)
{
	return (__s16)(counted >> NUMBER_SHIFT) + 1;
}

/* term_of is the term of a count. */
static __always_inline enum work_term term_of(__u32 counted)
{
	return counted % WORK_TERMS;
}

/* counted_now is the same in the turn that counts now. */
static __always_inline __u32 counted_now(__u32 counted)
{
	__u32 service = (__u16)counted / (2 * WORK_TERMS);

	return several(count_of(service, term_of(counted)), number_of(counted));
}

/* add_count adds the word's requests to its count, or takes them away: the sign is 1 or -1. */
static __always_inline void add_count(__u32 counted, __s32 sign)
{
	struct work *w;

	if (!counted)
		return;
	w = work_at((__u16)counted / (2 * WORK_TERMS) - 1);
	if (w)
		__sync_fetch_and_add(&w->counts[counted % (2 * WORK_TERMS)],
				     sign * number_of(counted));
}

/* count_in moves a socket or task to a count, or to none. */
static __always_inline void count_in(__u32 *counted, __u32 to)
{
	__u32 was = *(volatile __u32 *)counted;

	if (was == to)
		return;
	was = __sync_lock_test_and_set(counted, to);
	add_count(was, -1);
	add_count(to, 1);
}

/* count_if is count_in, unless another CPU changed the word meanwhile. */
static __always_inline void count_if(__u32 *counted, __u32 was, __u32 to)
{
	if (was == to || __sync_val_compare_and_swap(counted, was, to) != was)
		return;
	add_count(was, -1);
	add_count(to, 1);
}
