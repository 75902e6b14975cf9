/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* suspects.h: the senders of signals without a valid tag, as these name them, for an operator:
 * a node with an old key file, or a forger. */
#pragma once
#include "core/types.h"

#define SUSPECTS 64

/* A sender takes the place of another sender with the same index, so any number of forged
 * senders costs a record. Counts may be short by packets of two CPUs at once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SUSPECTS);
	__type(key, __u32);
	__type(value, struct suspect);
} suspects SEC(".maps");

__noinline int note_suspect(__be64 sender_be)
{
	__u32 i = (sender_be * 0x9e3779b97f4a7c15ULL) >> 58;
	struct suspect *s = bpf_map_lookup_elem(&suspects, &i);

	if (!s)
		return 0;
	if (s->sender_be != sender_be) {
		s->sender_be = sender_be;
		s->packets = 0;
	}
	s->packets++;
	return 0;
}
