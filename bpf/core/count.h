/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* count.h: every exit of a program goes through verdict or transmit, which count the
 * reason. Each program has its own `enum counter { …, COUNTERS }` in its counters.h;
 * user space reads the names from that enum's BTF. */
#pragma once
#include "core/types.h"

/* A record for each CPU: the counters of a packet are in one or two cache lines. A power of two, to
 * mask an index: Linux 6.1 loses the bound of an index on the stack. */
#define MAX_COUNTERS 128

struct counts {
	__u64 of[MAX_COUNTERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counters SEC(".maps");

static __always_inline void count(__u32 counter)
{
	__u32 zero = 0;
	struct counts *n = bpf_map_lookup_elem(&counters, &zero);

	if (n)
		n->of[counter % MAX_COUNTERS]++;
}

/* 0, or the link to redirect to where XDP_TX fails: veth hands XDP_TX frames to a peer that has
 * an XDP program, and otherwise leaves them in its ring; redirected frames reach every peer
 * with NAPI (XDP or GRO). */
const volatile __u32 redirect_to = 0;

/* counted counts the reason, without a call. */
static __always_inline int counted(__u32 reason, int action)
{
	count(reason);
	return action;
}

/* verdict counts the reason. A function of its own: few packets end there. */
__noinline int verdict(__u32 reason, int action)
{
	return counted(reason, action);
}

/* transmit sends the packet out of the link on which it came, and counts the reason. */
static __always_inline int transmit(__u32 reason)
{
	count(reason);
	return redirect_to ? bpf_redirect(redirect_to, 0) : XDP_TX;
}
