/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* digest.h: the hash that identifies a flow at the LB. NH (Black et al., UMAC, 1999) twice with
 * a shifted key, each 2^-32 universal, then mixed to 64 bits: without the key two flows cannot
 * be made to collide, and it costs an eighth of SipHash. LBs with the same candidate key have
 * the same digests, which also select a flow's candidates. No packet carries a digest. Go's
 * twin is policy.Digest. */
#pragma once
#include "core/types.h"

#define TUPLE_PAIRS ((int)sizeof(struct tuple) / 8)

struct digest_key {
	__u64 odd[2];
	__u32 word[2 * TUPLE_PAIRS + 2];
};

const volatile struct digest_key flow_key = {};

static __always_inline __u64 digest(const struct tuple *t)
{
	__u32 k0 = flow_key.word[0], k1 = flow_key.word[1], k2, k3;
	const __u32 *w = (const void *)t;
	__u64 x = 0, y = 0;

	for (int i = 0; i < 2 * TUPLE_PAIRS; i += 2) {
		k2 = flow_key.word[i + 2];
		k3 = flow_key.word[i + 3];
		x += (__u64)(w[i] + k0) * (__u32)(w[i + 1] + k1);
		y += (__u64)(w[i] + k2) * (__u32)(w[i + 1] + k3);
		k0 = k2;
		k1 = k3;
		asm volatile("" : "+r"(x), "+r"(y)); /* pairs at once would need the stack */
	}
	x = (x ^ x >> 32) * flow_key.odd[0] + y;
	x = (x ^ x >> 32) * flow_key.odd[1];
	return x ^ x >> 32;
}
