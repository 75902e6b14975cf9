/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* stall.h: access to tables that all CPUs write without locks. A test sets `stalls` before
 * loading, so that other CPUs run between two steps of this CPU; while it is false the verifier
 * removes the wait. No callback: the chain of calls has no room for it. */
#pragma once
#include "core/types.h"

#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define compare_and_swap(at, was, now) (__sync_val_compare_and_swap(at, was, now) == (was))

#define STALL 64 /* most readings of the clock in a wait */

const volatile bool stalls = false;

static __always_inline void stall(void)
{
	__u32 turns;

	if (!stalls)
		return;
	turns = bpf_get_prandom_u32() % STALL;
	for (__u32 i = 0; i < STALL && i < turns; i++)
		bpf_ktime_get_ns();
}
