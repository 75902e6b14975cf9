/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* refused.h: which offers this agent refused. When such a SYN comes again, its
 * first refusal may have found a server that took it: a second opinion would make
 * two. Of two datagrams at once, the first may still be on its way there. A table
 * of digests in which a newcomer takes the place of whoever was there: bounded,
 * and what it forgets is only asked once more. */
#pragma once
#include "packet/parse.h"
#include "core/siphash.h"

#define REFUSALS 65536
#define REFUSED_SYN 60 /* seconds; a SYN is sent again for about as long (RFC 6298) */
#define REFUSED_DATAGRAM 2 /* so 1 to 2 s: long for two that were sent at once */

struct refusal {
	__u32 digest; /* never 0 */
	__u32 second;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, REFUSALS);
	__type(key, __u32);
	__type(value, struct refusal);
} refusals SEC(".maps");

static __always_inline __u32 seconds(__u64 ns)
{
	return ns / 1000000000ULL;
}

/* refusal_place is where the packet's opening is kept, and its digest. */
static __always_inline struct refusal *refusal_place(const struct packet *p, __u32 *digest)
{
	const __u64 *word = (const void *)&p->t;
	__u64 h = p->seq;
	__u32 at;

	for (int i = 0; i < TUPLE_WORDS; i++)
		h = mix(h ^ word[i]);
	at = h % REFUSALS;
	*digest = h >> 32 | 1;
	return bpf_map_lookup_elem(&refusals, &at);
}

static __always_inline void note_refusal(const struct packet *p, __u64 now)
{
	__u32 digest;
	struct refusal *r = refusal_place(p, &digest);

	if (r)
		*r = (struct refusal){ digest, seconds(now) };
}

static __always_inline bool was_refused(const struct packet *p, __u64 now)
{
	__u32 limit = p->kind == KIND_UDP ? REFUSED_DATAGRAM : REFUSED_SYN;
	__u32 digest;
	struct refusal *r = refusal_place(p, &digest);

	return r && r->digest == digest && seconds(now) - r->second < limit;
}
