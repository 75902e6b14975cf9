/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* domain.h: the SR domain. Who puts segments on a packet has an address in one
 * of its blocks; where LB and world share a link, nothing else tells inside from
 * outside (RFC 8754 §5.1). No block: anybody may be inside. */
#pragma once
#include "core/types.h"

#define MAX_BLOCKS 16

struct block {
	__be64 net_be;
	__be64 mask_be;
};

const volatile struct block domain[MAX_BLOCKS] = {};
const volatile __u32 blocks = 0;

/* is_inside is a function of its own: to the verifier each block is another way out. */
__noinline bool is_inside(__be64 locator_be)
{
	for (__u32 i = 0; i < MAX_BLOCKS && i < blocks; i++)
		if ((locator_be & domain[i].mask_be) == domain[i].net_be)
			return true;
	return !blocks;
}
