/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow.h: the LB's state of a flow (6LB Table II): the server that took it, in the word of
 * an entry of lines.h.
 *
 *   (none)        cs of a SYN-ACK       -> embryonic
 *   (none)        cs of other packets   -> established (recovered: the server's kernel has it)
 *   embryonic     the ACK it expects    -> established
 *   established   rms, FIN              -> closed, removed `linger` after both sides closed
 *   established   nm, idle              -> (none)
 *
 *   bits     established                embryonic
 *   0-13     number of the server       the same
 *   14       1                          0
 *   15       the entry is being moved   the same
 *   16-31    generation                 the same
 *   32-47    announced: generation of   32-63: the acknowledgement number that the
 *            the last SYN                      client's next packet must have
 *   48-50    enum closed, or-ed
 *
 * Established entries are never evicted: while both lines are full, a new flow has no
 * entry and each of its packets is recovered. Embryonic entries give way to new ones, the
 * oldest first, so a flood of SYNs evicts only embryonic entries. */
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

static __always_inline __u64 closed_by(__u64 flow, enum closed side)
{
	return flow | (__u64)side << WORD_CLOSED;
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

/* flow_close adds the side that closed a flow to its word, whatever else changes meanwhile. */
__noinline int flow_close(__u64 hash, __u64 word, enum closed side)
{
	for (int i = 0; i < 3 && word & WORD_ESTABLISHED && closed_by(word, side) != word; i++) {
		if (flow_change(hash, word, closed_by(word, side)))
			break;
		word = flow_find(hash, false);
	}
	return 0;
}
