/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* loads.h: the counters of every load measure, a record for each offering. */
#pragma once
#include "agent/offerings.h"

#define NO_LOAD (~0ULL) /* the load is not known */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct load);
} loads SEC(".maps");

/* The number of recounts (agent/recount.h): its parity is that of the count in use, of two. */
volatile __u32 counting SEC(".data.counting") = 0;

static __always_inline struct load *load_at(__u32 i)
{
	return bpf_map_lookup_elem(&loads, &i);
}
