/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow_age.h: the beginning and the age of a flow. Packets are counted by the age of their flow, so that
 * user space knows which part of a core's load is how old, without a walk of the table. Classes are
 * halves of octaves of 2^24 ns; twin of weights.AgeClass. */
#pragma once
#include "core/clock.h"

enum edge_age {
	EDGE_BEGUN_SHIFT = 39,	/* in a flow's word, to its end */
	EDGE_AGE_SHIFT = 24,	/* ages are in 2^24 ns */
	EDGE_AGE_OLDEST = 1023, /* all older ones are of the last class, too */
};

/* edge_begun is the beginning of a flow that begins now, as in its word. */
static __always_inline __u64 edge_begun(__u64 now)
{
	return now >> EDGE_AGE_SHIFT << EDGE_BEGUN_SHIFT;
}

/* edge_age returns the age of a flow. */
static __always_inline __u32 edge_age(__u64 word, __u64 now)
{
	return (edge_begun(now) - (word >> EDGE_BEGUN_SHIFT << EDGE_BEGUN_SHIFT)) >>
	       EDGE_BEGUN_SHIFT;
}

/* edge_age_class is the class of an age: 0 and 1, then two an octave. */
static __always_inline __u32 edge_age_class(__u32 age)
{
	__u32 octave, step, v, half;

	if (age > EDGE_AGE_OLDEST)
		age = EDGE_AGE_OLDEST;
	if (age < 2)
		return age;
	octave = (age > 0xff) << 3;
	v = age >> octave;
	step = (v > 0xf) << 2;
	v >>= step;
	octave += step;
	step = (v > 3) << 1;
	v >>= step;
	octave += step + (v >> 1);
	half = age >> (octave - 1) & 1;
	return 2 * octave + half;
}
