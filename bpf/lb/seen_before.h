/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* seen_before.h: packets without an entry that came before: SYNs, and data of unknown flows. A table
 * of digests in which a new packet replaces the digest in its slot: bounded, and a flood makes it
 * forget only that a packet is a retransmission. */
#pragma once
#include "core/clock.h"
#include "packet/parse.h"
#include "core/siphash.h"

#define SYN_SLOTS 65536
#define SYN_RETRY_S 64 /* later retransmissions, by tcp_syn_retries, count as first ones */
#define MAX_TIMES 255
#define ROTATED_FROM 2 /* repetitions of a SYN, from which on its list is rotated */

struct seen {
	__u32 digest;
	__u16 second;
	__u16 times;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SYN_SLOTS);
	__type(key, __u32);
	__type(value, struct seen);
} syns SEC(".maps");

/* times_seen returns how often the SYN of a flow came, by its sequence number, as far as that is
 * remembered. */
static __always_inline __u32 times_seen(__u64 hash, __u32 seq)
{
	__u64 h = mix(hash ^ seq);
	__u32 at = h % SYN_SLOTS;
	const struct seen *s = bpf_map_lookup_elem(&syns, &at);

	return s && s->digest == h >> 32 ? s->times : 0;
}

/* seen_before counts a packet by its flow and sequence number, and returns how often it came
 * before. */
static __always_inline __u32 seen_before(const struct packet *p)
{
	__u16 second = ticked_ns() / 1000000000ULL;
	__u64 h = mix(p->hash ^ p->seq);
	__u32 at = h % SYN_SLOTS;
	struct seen *s, was;

	s = bpf_map_lookup_elem(&syns, &at);
	if (!s)
		return 0;
	was = *s;
	if (was.digest != h >> 32 || (__u16)(second - was.second) > SYN_RETRY_S)
		was.times = 0;
	*s = (struct seen){ h >> 32, second, was.times + (was.times < MAX_TIMES) };
	return was.times;
}
