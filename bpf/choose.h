/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* choose.h: the list of candidates of a flow. `choices` different members of a
 * pool of n, every ordered list equally likely over the hash h; the same hash
 * gives the same list. Go's twin is policy.Candidates. */
#pragma once
#include "siphash.h"

struct candidates {
	__u32 n;
	__u32 at[MAX_CHOICES];
};

/* skip moves a draw among the members not yet drawn to its place among all:
 * taken is sorted upwards. */
static __always_inline __u32 skip(__u32 draw, const __u32 *taken, int n)
{
	for (int i = 0; i < MAX_CHOICES - 1; i++)
		if (i < n && draw >= taken[i])
			draw++;
	return draw;
}

static __always_inline void insert_sorted(__u32 *taken, int n, __u32 value)
{
	for (int i = 0; i < MAX_CHOICES; i++) {
		__u32 here = taken[i];

		if (i >= n) {
			taken[i] = value;
			return;
		}
		if (value < here) {
			taken[i] = value;
			value = here;
		}
	}
}

/* choose draws without replacement (Floyd's order does not matter here: each
 * draw is uniform over what is left). Fewer members than choices: all of them. */
static __always_inline void choose(__u64 h, __u32 members, __u32 choices, struct candidates *out)
{
	__u32 taken[MAX_CHOICES] = {};

	out->n = choices < members ? choices : members;
	for (__u32 i = 0; i < MAX_CHOICES; i++) {
		__u64 r = mix(h + (i + 1) * 0x9e3779b97f4a7c15ULL) >> 32;

		if (i >= out->n)
			break;
		out->at[i] = skip(r * (members - i) >> 32, taken, i);
		insert_sorted(taken, i, out->at[i]);
	}
}
