/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* clock.h: the clock of all programs. Coarse (one timer tick, 1-10 ms): bpf_ktime_get_ns costs
 * more than the whole lookup. A test sets virtual_time before loading and sets virtual_now_ns
 * by hand. */
#pragma once
#include "core/types.h"

const volatile __u64 tick_ns = 1000000; /* set before loading */
const volatile bool virtual_time = false;
__u64 virtual_now_ns = 0;

/* ticked_ns is the kernel's count of ticks, for ages alone: one load. */
static __always_inline __u64 ticked_ns(void)
{
	if (virtual_time)
		return virtual_now_ns;
	return bpf_jiffies64() * tick_ns;
}
