/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* limit.h: the costs that strangers may cause at this node, or at others by it. Each kind of cost has a token
 * bucket for each owner, of all CPUs, which is refilled by the coarse clock and holds the tokens of a
 * second: a question has the server that is asked, for each service; an answer has the service that
 * the packet is for (RFC 4443 §2.4(f)), and besides its receiver, so that no sender takes the answers
 * of all others; a search for a neighbour has this node. Packets that a forger sends once take nothing
 * from those that come again, as the packets of a live flow do, and datagrams take nothing from
 * segments. */
#pragma once
#include "core/clock.h"
#include "core/siphash.h"
#include "core/stall.h"

enum limit {
	LIMIT_STRAY,	 /* a server asked about a segment without payload, or an ICMP error */
	LIMIT_QUESTION,	 /* … about one with payload */
	LIMIT_REPEATED,	 /* … about one that came before */
	LIMIT_DATAGRAM,	 /* … about a datagram */
	LIMIT_HELD,	 /* a server asked about a SYN for the ports of its flow */
	LIMIT_REFUSAL,	 /* a RST or port unreachable */
	LIMIT_TOO_BIG,	 /* a packet too big */
	LIMIT_ECHO,	 /* an echo reply */
	LIMIT_EXPIRED,	 /* a time exceeded */
	LIMIT_RESOLVE,	 /* a neighbour that user space is to find */
	LIMIT_NEIGHBOUR, /* … that the kernel is to find for a packet */
	LIMITS,
};

/* Tokens that an owner gets in a second. */
enum limit_rates {
	STRAY_TOKENS = 4000,	 /* as for LIMIT_HELD */
	QUESTION_TOKENS = 20000, /* as for LIMIT_REPEATED */
	DATAGRAM_TOKENS = 50000,
	ANSWER_TOKENS = 10000,
	RESOLVE_TOKENS =
		50, /* as for LIMIT_NEIGHBOUR: the kernel keeps a neighbour that is silent for 18 s at most: fewer
			      * than it has room for (gc_thresh3, 1024) */
};

/* Answers of a kind to a receiver in a second, and searches for a neighbour. In NEIGHBOUR_S, the
 * first packet of a neighbour alone takes a token, as the kernel then looks for it. */
enum limit_each {
	ANSWERS_EACH = 100,
	RESOLVED_EACH = 2,
	NEIGHBOUR_EACH = 64,
	NEIGHBOUR_S = 4,
};

#define LIMIT_SECOND 1000000000LL
#define OWNERS (1 << 17)
#define RECEIVERS (1 << 14)

/* A bucket is the time at which it was empty: every token since then is in it. Owners are hashed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, OWNERS);
	__type(key, __u32);
	__type(value, __s64);
} limits SEC(".maps");

/* A receiver, and its answers of this second: another receiver in the slot takes its place, which
 * forgets them. Counts may be short by answers of two CPUs at once. */
struct receiver {
	__u32 digest;
	__u16 second;
	__u16 times;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, RECEIVERS);
	__type(key, __u32);
	__type(value, struct receiver);
} receivers SEC(".maps");

/* Set by the bench and by tests of everything else: each packet may cost all. */
const volatile bool unlimited = false;

/* A secret, set before loading, without which no sender finds a receiver of the same slot. */
const volatile __u64 limit_secret = 0;

/* By enum limit, to the power of two. */
struct rule {
	__u32 token_ns;
	__u16 each;   /* of one receiver, in `seconds`; 0: it has no receiver */
	__u8 seconds; /* not 0 */
	__u8 once;    /* the first of these alone takes a token */
};

#define TOKENS(n) (LIMIT_SECOND / (n))

const volatile struct rule rules[16] = {
	[LIMIT_STRAY] = { TOKENS(STRAY_TOKENS), 0, 1, 0 },
	[LIMIT_QUESTION] = { TOKENS(QUESTION_TOKENS), 0, 1, 0 },
	[LIMIT_REPEATED] = { TOKENS(QUESTION_TOKENS), 0, 1, 0 },
	[LIMIT_DATAGRAM] = { TOKENS(DATAGRAM_TOKENS), 0, 1, 0 },
	[LIMIT_HELD] = { TOKENS(STRAY_TOKENS), 0, 1, 0 },
	[LIMIT_REFUSAL] = { TOKENS(ANSWER_TOKENS), ANSWERS_EACH, 1, 0 },
	[LIMIT_TOO_BIG] = { TOKENS(ANSWER_TOKENS), ANSWERS_EACH, 1, 0 },
	[LIMIT_ECHO] = { TOKENS(ANSWER_TOKENS), ANSWERS_EACH, 1, 0 },
	[LIMIT_EXPIRED] = { TOKENS(ANSWER_TOKENS), ANSWERS_EACH, 1, 0 },
	[LIMIT_RESOLVE] = { TOKENS(RESOLVE_TOKENS), RESOLVED_EACH, 1, 0 },
	[LIMIT_NEIGHBOUR] = { TOKENS(RESOLVE_TOKENS), NEIGHBOUR_EACH, NEIGHBOUR_S, 1 },
};

_Static_assert(LIMITS <= 16, "a rule for each limit");

static __always_inline bool take_token(__u32 limit, __u64 owner)
{
	__s64 now = ticked_ns(), token = rules[limit % 16].token_ns, was, empty, *bucket;
	__u32 at = mix(owner * 16 + limit) % OWNERS;

	bucket = bpf_map_lookup_elem(&limits, &at);
	if (!bucket)
		return true;
	was = empty = READ_ONCE(*bucket);
	if (empty < now - LIMIT_SECOND)
		empty = now - LIMIT_SECOND;
	if (empty > now) /* the clock went back */
		WRITE_ONCE(*bucket, now);
	empty += token;
	if (empty > now)
		return false;
	if (!compare_and_swap(bucket, was, empty)) /* another CPU refilled it, or took one, too */
		__sync_fetch_and_add(bucket, token);
	return true;
}

/* spend takes a token of an owner; false if it has none. A function of its own for the verifier. */
__noinline bool spend(__u32 limit, __u64 owner)
{
	return unlimited || take_token(limit, owner);
}

/* may_tell takes a token of an owner for an answer to a receiver, or for a search for a neighbour;
 * false if the owner has none, or the receiver had its answers. A function of its own, as few packets
 * need it. */
__noinline bool may_tell(__u32 limit, const struct in6_addr *to, __u64 owner)
{
	const volatile struct rule *rule = &rules[limit % 16];
	const __u64 *half = (const void *)to;
	struct receiver *r, was;
	__u16 second;
	__u32 at;
	__u64 h;

	if (unlimited || !to)
		return unlimited;
	h = mix(mix(half[0] ^ limit_secret) + half[1]) ^ limit_secret;
	h = mix(h + (owner + 1) * 16 + limit);
	at = h % RECEIVERS;
	r = bpf_map_lookup_elem(&receivers, &at);
	if (!r)
		return true;
	second = ticked_ns() / LIMIT_SECOND / rule->seconds;
	was = *r;
	if (was.digest != h >> 32 || was.second != second)
		was.times = 0;
	if (was.times >= rule->each)
		return false;
	if (!(was.times && rule->once) && !take_token(limit, owner))
		return false;
	*r = (struct receiver){ h >> 32, second, was.times + 1 };
	return true;
}
