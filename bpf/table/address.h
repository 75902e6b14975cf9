/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* address.h: where a flow's entry may be in a table of two choices (cuckoo hashing,
 * Pagh and Rodler 2001): a primary line, and an alternate line that either line and the
 * fingerprint give (partial-key cuckoo hashing, Fan et al., CoNEXT 2014, but by a
 * difference, so that the number of lines need be no power of two). */
#pragma once
#include "core/types.h"

/* primary_among returns the primary line, one of n, of a flow. It uses first the bits of the
 * digest that a fingerprint does not hold, those below `held`, so that flows with equal
 * fingerprints seldom share a line. */
static __always_inline __u32 primary_among(__u64 hash, int held, __u32 n)
{
	return (__u64)(__u32)(hash << (32 - held) | hash >> (32 + held)) * n >> 32;
}

/* alternate_among returns the other line of a flow, whose first line and the digest bits of
 * its fingerprint are given. */
static __always_inline __u32 alternate_among(__u32 one, __u64 digest, __u32 n)
{
	__u32 sum = (digest * 0x9e3779b97f4a7c15ULL >> 32) * n >> 32;
	__u64 other = (__u64)sum - one, below = other >> 63;

	asm("" : "+r"(below)); /* no branch and no mask: either is two ways for the verifier */
	return other + below * n;
}
