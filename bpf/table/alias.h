/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* alias.h: a number by weight, in a single read (Walker 1977). Each of a table's rows has a number of its
 * own, a second number, and the part of the row that is its own; all rows are equally likely. User space
 * computes the rows (policy.Alias). A word for each row, so that a row changes by a single store:
 *
 *   0-15   the row's own number
 *   16-31  the other number
 *   32-63  the own number's part of the row, less 1, in 2^-32
 *
 * A row and the place in it come from 32 random bits, or from a turn. */
#pragma once
#include "core/types.h"

enum alias_layout {
	ALIAS_OTHER = 16,
	ALIAS_PART = 32,
};

/* alias_row returns a row and the place in it, in 2^-32, for 32 random bits. */
static __always_inline __u32 alias_row(__u32 random, __u32 rows, __u32 *place)
{
	__u64 at = (__u64)random * rows;

	*place = at;
	return at >> 32;
}

/* Odd parts of 2^32: the golden ratio, and another number far from its multiples. */
#define GOLDEN 0x9e3779b9U
#define APART 0xc13fa9a9U

/* alias_turn returns a row and the place in it for a turn. Each round visits every row once; the place
 * in a row grows by the golden ratio from round to round, which spreads the turns of either number
 * evenly. */
static __always_inline __u32 alias_turn(__u32 turn, __u32 rows, __u32 *place)
{
	__u32 row = turn % rows;

	*place = turn / rows * GOLDEN + row * APART;
	return row;
}

/* alias_in returns the number at a place in a row. */
static __always_inline __u32 alias_in(__u64 row, __u32 place)
{
	return place <= row >> ALIAS_PART ? row & 0xffff : row >> ALIAS_OTHER & 0xffff;
}
