/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* stall.h: a test sets `stalls` before loading, so that other CPUs come between two
 * steps of this one; where it is false the verifier removes the wait. */
#pragma once
#include "types.h"

#define STALL 400 /* turns of a loop, at most */

const volatile bool stalls = false;

static long nothing(__u64 i, void *none)
{
	return 0;
}

static __always_inline void stall(void)
{
	if (stalls)
		bpf_loop(bpf_get_prandom_u32() % STALL, nothing, NULL, 0);
}
