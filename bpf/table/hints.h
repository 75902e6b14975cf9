/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* hints.h: a byte of digest for each slot of a table, dense enough to stay in the cache: the hints
 * of a flow's two lines tell in most cases that it has no entry, where its lines would have to
 * come from memory.
 *
 * A CPU writes the hint of a slot that it owns: before a search can find the entry, and 0 after
 * none can. So there is no entry without its hint; a hint without an entry costs a search. */
#pragma once
#include "core/stall.h"

enum hinting {
	HINT_SHIFT = 40, /* where a fingerprint has the hint */
};

#define EACH_HINT 0x0101010101010101ULL

/* hint_of is the hint of a fingerprint, never 0. */
static __always_inline __u8 hint_of(__u64 fp)
{
	__u32 hint = fp >> HINT_SHIFT & 0xff;

	return hint | (hint - 1) >> 31;
}

/* is_among is not 0 if any of eight hints is that of a fingerprint. */
static __always_inline __u64 is_among(__u64 hints, __u64 fp)
{
	__u64 differ = hints ^ hint_of(fp) * EACH_HINT;

	return (differ - EACH_HINT) & ~differ & EACH_HINT << 7;
}

/* write_hint writes a hint of a line. */
static __always_inline void write_hint(void *hints, __u32 i, __u8 hint)
{
	if (hints)
		((volatile __u8 *)hints)[i] = hint;
}
