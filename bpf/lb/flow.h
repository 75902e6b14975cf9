/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow.h: what the LB knows of a flow (6LB Table II): which server took it, in
 * one word of an entry of lines.h.
 *
 *   (none)     cs of a SYN-ACK       -> embryo
 *   (none)     cs of anything else   -> flow    recovered, the kernel vouches
 *   embryo     the ACK it expects    -> flow
 *   flow       rms, FIN              -> closed  removed `linger` after both sides
 *   flow       nm, idle              -> (none)
 *
 *   bits     flow                       embryo
 *   0-13     server's number            the same
 *   14       1                          0
 *   15       the entry is being moved   the same
 *   16-31    generation                 the same
 *   32-47    announced: generation of   32-63: expects: what the client's
 *            the last SYN                      acknowledgement will say
 *   48-50    enum closed, or-ed
 *
 * Flows are never evicted: when there is no place left a new one has no entry and
 * each of its packets finds its server by recoverStickiness. Embryos make room for
 * flows and for each other, the oldest first: a flood of SYNs displaces nothing
 * but its like. */
#pragma once
#include "lb/lines.h"
#include "packet/parse.h"

#define WORD_SERVER 0x3fffULL /* MAX_SERVERS - 1 */
#define WORD_CLOSED 48

static __always_inline __u32 server_in_word(__u64 word)
{
	return word & WORD_SERVER;
}

static __always_inline __u16 generation_in_word(__u64 word)
{
	return word >> 16;
}

static __always_inline __u32 expected_ack(__u64 embryonic)
{
	return embryonic >> 32;
}

static __always_inline __u16 announced(__u64 flow)
{
	return flow >> 32;
}

static __always_inline __u64 announce(__u64 flow, __u16 generation)
{
	return (flow & ~(0xffffULL << 32)) | (__u64)generation << 32;
}

static __always_inline __u64 closed_by(__u64 flow, enum closed who)
{
	return flow | (__u64)who << WORD_CLOSED;
}

static __always_inline __u64 established_word(__u32 server, __u16 generation)
{
	return (server & WORD_SERVER) | WORD_ESTABLISHED | (__u64)generation << 16 |
	       (__u64)generation << 32;
}

static __always_inline __u64 embryonic_word(__u32 server, __u16 generation, __u32 expects)
{
	return (server & WORD_SERVER) | (__u64)generation << 16 | (__u64)expects << 32;
}

static __always_inline bool both_closed(__u64 flow)
{
	__u32 both = CLOSED_CLIENT | CLOSED_SERVER;

	return (flow >> WORD_CLOSED & both) == both;
}

static __always_inline bool is_over(__u64 flow)
{
	return flow >> WORD_CLOSED & CLOSED_RESET || both_closed(flow);
}

/* flow_close adds who closed a flow, whatever else changes meanwhile. */
__noinline int flow_close(__u64 hash, __u64 word, enum closed who)
{
	for (int i = 0; i < 3 && word & WORD_ESTABLISHED && closed_by(word, who) != word; i++) {
		if (flow_change(hash, word, closed_by(word, who)))
			break;
		word = flow_find(hash, false);
	}
	return 0;
}
