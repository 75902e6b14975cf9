/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* clock.h: CLOCK_MONOTONIC, which user space compares with its own clock, from the kernel's count
 * of ticks: without a call. */
#pragma once
#include "core/clock.h"

/* The difference of CLOCK_MONOTONIC to the count of ticks. The kernel counts ticks by that clock,
 * so it stays; a kernel without timers of high resolution may miss ticks. */
volatile __u64 ticks_began_ns SEC(".data.clock") = 0;

static __always_inline __u64 now_ns(void)
{
	return virtual_time ? virtual_now_ns : ticked_ns() + ticks_began_ns;
}

/* set_clock makes now_ns right to two ticks. */
static __always_inline void set_clock(void)
{
	__u64 began = bpf_ktime_get_coarse_ns() - bpf_jiffies64() * tick_ns;
	__s64 wrong = began - ticks_began_ns, most = 2 * tick_ns;

	if (wrong > most || wrong < -most)
		ticks_began_ns = began;
}
