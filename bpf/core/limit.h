/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* limit.h: the cost that packets may have for other nodes. Each CPU has a token bucket for each
 * kind of cost (RFC 4443 §2.4(f)), which is refilled by the coarse clock and holds the tokens of a
 * second. Packets that a forger sends once take nothing from those that come again, as the
 * packets of a live flow do, and datagrams take nothing from segments. */
#pragma once
#include "core/clock.h"

enum limit {
	LIMIT_STRAY,	/* a server asked about a segment without payload, or an ICMP error */
	LIMIT_QUESTION, /* … about one with payload */
	LIMIT_REPEATED, /* … about one that came before */
	LIMIT_DATAGRAM, /* … about a datagram */
	LIMIT_HELD,	/* a server asked about a SYN for the ports of its flow */
	LIMIT_REFUSAL,	/* a RST or port unreachable */
	LIMIT_TOO_BIG,	/* a packet too big */
	LIMIT_ECHO,	/* an echo reply */
	LIMITS,
};

/* Tokens that a CPU gets in a second. */
enum limit_rates {
	STRAY_TOKENS = 20000,	  /* as for LIMIT_HELD */
	QUESTION_TOKENS = 100000, /* as for LIMIT_REPEATED */
	DATAGRAM_TOKENS = 200000,
	ANSWER_TOKENS = 1000, /* of each other kind */
};

#define LIMIT_SECOND 1000000000LL

/* A bucket is the time at which it was empty: every token since then is in it. */
struct buckets {
	__s64 empty_ns[8]; /* enum limit; a power of two, to mask an index */
};

_Static_assert(LIMITS <= 8, "a bucket for each limit");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct buckets);
} limits SEC(".maps");

/* Set by the bench and by tests of everything else: each packet may cost all. */
const volatile bool unlimited = false;

static __always_inline __s64 token_ns(__u32 limit)
{
	switch (limit) {
	case LIMIT_STRAY:
	case LIMIT_HELD:
		return LIMIT_SECOND / STRAY_TOKENS;
	case LIMIT_QUESTION:
	case LIMIT_REPEATED:
		return LIMIT_SECOND / QUESTION_TOKENS;
	case LIMIT_DATAGRAM:
		return LIMIT_SECOND / DATAGRAM_TOKENS;
	default:
		return LIMIT_SECOND / ANSWER_TOKENS;
	}
}

/* spend takes n tokens from a bucket of this CPU; false if it has not so many. A function of its
 * own for the verifier. */
__noinline bool spend(__u32 limit, __u32 n)
{
	__s64 now = ticked_ns(), empty;
	__u32 zero = 0;
	struct buckets *b = bpf_map_lookup_elem(&limits, &zero);

	if (unlimited || !b)
		return true;
	empty = b->empty_ns[limit % 8];
	if (empty < now - LIMIT_SECOND)
		empty = now - LIMIT_SECOND;
	if (empty > now) /* the clock went back */
		b->empty_ns[limit % 8] = empty = now;
	empty += n * token_ns(limit);
	if (empty > now)
		return false;
	b->empty_ns[limit % 8] = empty;
	return true;
}
