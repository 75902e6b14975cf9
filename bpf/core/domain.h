/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* domain.h: the SR domain. A node that sends segments has an address in any of the domain's
 * blocks; where LB and clients share a link, nothing else separates inside from outside (RFC
 * 8754 §5.1). Without blocks every address is inside. */
#pragma once
#include "core/types.h"

#define MAX_BLOCKS 16

struct block {
	__be64 net_be;
	__be64 mask_be;
};

const volatile struct block domain[MAX_BLOCKS] = {};
const volatile __u32 blocks = 0;

/* is_in_block is a function of its own: each block is another way out for the verifier. */
__noinline bool is_in_block(__be64 locator_be)
{
	for (__u32 i = 0; i < MAX_BLOCKS && i < blocks; i++)
		if ((locator_be & domain[i].mask_be) == domain[i].net_be)
			return true;
	return false;
}

static __always_inline bool is_inside(__be64 locator_be)
{
	return !blocks || is_in_block(locator_be);
}
