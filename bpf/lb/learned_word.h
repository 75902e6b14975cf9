/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learned_word.h: the bits of a word of a flow that learns (lb/learned_flows.h), beside those of lb/flow.h. Its
 * entry is the client's making, and established for lb/flow.h from the SYN on:
 *
 *   0-13     number of the server
 *   14, 63   1
 *   15       the entry is being moved
 *   16-31    start, in 2^22 ns; 0: the flow is older than four minutes, or its start is not known
 *   32-41    seat in the tally of its service
 *   42       counted: established, not closed, not silent
 *   43       colour of the count
 *   44       its age is sampled at its packets, too
 *   45       alive: whatever the client sends next shows that the flow is not over
 *   46       embryonic
 *   47       1
 *   48       the client closed it
 *   49       silent: nothing came for long
 *   51       a flow of one packet, or of two, or embryonic; or closed, and a SYN came since
 *   52       UDP
 *   53-57    number of the tally
 *   58-62    1 */
#pragma once
#include "core/types.h"

#define WORD_SERVER 0x3fffULL /* MAX_SERVERS - 1 */
#define WORD_SEAT 32
#define WORD_COUNTED (1ULL << 42)
#define WORD_COLOUR (1ULL << 43)
#define WORD_AGES (1ULL << 44)
#define WORD_ALIVE (1ULL << 45)
#define WORD_EMBRYONIC (1ULL << 46)
#define WORD_LEARNED (1ULL << 47)
#define WORD_CLIENT_CLOSED (1ULL << 48)
#define WORD_SILENT (1ULL << 49)
#define WORD_TALLY 53
#define WORD_OF_TALLY (31ULL << 58)

/* is_learned is 1 if a word is of a flow that learns, else 0. */
static __always_inline __u64 is_learned(__u64 word)
{
	return word >> 63 & word >> 47 & word >> 14 & 1;
}

static __always_inline __u32 tally_in_word(__u64 word)
{
	return word >> WORD_TALLY & MAX_LEARNED;
}

static __always_inline __u64 seat_in_word(__u64 word)
{
	return word >> WORD_SEAT & (MAX_SEATS - 1);
}

static __always_inline __u16 start_in_word(__u64 word)
{
	return word >> 16;
}

static __always_inline __u64 started(__u64 word, __u16 start)
{
	return (word & ~(0xffffULL << 16)) | (__u64)start << 16;
}

static __always_inline __u64 colour_of(__u64 word)
{
	return word >> 43 & 1;
}

/* coloured gives a word a colour. */
static __always_inline __u64 coloured(__u64 word, __u32 colour)
{
	return (word & ~WORD_COLOUR) | (__u64)(colour & 1) << 43;
}

#define SHARE_EMBRYONIC 1ULL

/* share_of is the part of a word's flow in the count of its seat. */
static __always_inline __u64 share_of(__u64 word)
{
	return ((word >> 42 & 1) << 32 | (word >> 46 & 1)) * is_learned(word);
}
