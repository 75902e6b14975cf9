/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* passed_on.h: the offers that this agent passed on. When such a SYN is retransmitted, the
 * next candidate may have accepted the first: accepting the second would make two
 * connections. Of two datagrams at once the first may still be on its way there. The table
 * holds digests and a new offer overwrites an old offer: its size is bounded, and a forgotten
 * offer costs a second decision. */
#pragma once
#include "packet/parse.h"
#include "core/siphash.h"

#define PASSED_ON_SLOTS 65536
#define PASSED_ON_SYN_S 60     /* a SYN is retransmitted for about as long (RFC 6298) */
#define PASSED_ON_DATAGRAM_S 2 /* 1 to 2 s by whole seconds: long for two sent at once */

struct passed_on {
	__u32 digest; /* never 0 */
	__u32 second;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PASSED_ON_SLOTS);
	__type(key, __u32);
	__type(value, struct passed_on);
} passed_on_offers SEC(".maps");

static __always_inline __u32 seconds(__u64 ns)
{
	return ns / 1000000000ULL;
}

/* passed_on_slot returns the slot of the packet's offer, and its digest: the flow's and the
 * sequence number, mixed. */
static __always_inline struct passed_on *passed_on_slot(const struct packet *p, __u32 *digest)
{
	__u64 h = mix(p->hash ^ p->seq);
	__u32 at;

	at = h % PASSED_ON_SLOTS;
	*digest = h >> 32 | 1;
	return bpf_map_lookup_elem(&passed_on_offers, &at);
}

static __always_inline void remember_passed_on(const struct packet *p, __u64 now)
{
	__u32 digest;
	struct passed_on *r = passed_on_slot(p, &digest);

	if (r)
		*r = (struct passed_on){ digest, seconds(now) };
}

static __always_inline bool was_passed_on(const struct packet *p, __u64 now)
{
	__u32 limit = p->kind == KIND_UDP ? PASSED_ON_DATAGRAM_S : PASSED_ON_SYN_S;
	__u32 digest;
	struct passed_on *r = passed_on_slot(p, &digest);

	return r && r->digest == digest && seconds(now) - r->second < limit;
}
