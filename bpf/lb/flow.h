/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow.h: the LB's state of a flow (6LB Table II): the server that took it, in the word of
 * an entry of flow_table.h.
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
 *            the last SYN that the             client's next packet must have
 *            server was asked about
 *   48-50    enum closed, or-ed
 *   51       a UDP flow of two datagrams; a closed TCP flow, and a SYN came since (client_flows.h)
 *   52       UDP
 *   53-62    hash of its service
 *   63       made by the client's packets (client_flows.h); of flows that learn: learned_word.h
 *
 * Which entries give way to new flows: evict.h. */
#pragma once
#include "lb/flow_table.h"
#include "lb/service.h"
#include "lb/learned_word.h"

#define WORD_CLOSED 48
#define WORD_BRIEF (1ULL << 51)
#define WORD_UDP (1ULL << 52)
#define WORD_SERVICE (0x7ffULL << 52) /* the service, with its protocol */
#define WORD_KEPT (1ULL << 63)	      /* of the client's making: its packets go in dt */

_Static_assert(MAX_SERVERS == WORD_SERVER + 1, "a word has no room for the number of a server");

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

/* announce takes an entry that the client's packets made over: its bits have another meaning. */
static __always_inline __u64 announce(__u64 flow, __u16 generation)
{
	return (flow & ~(0xffffULL << 32 | WORD_KEPT)) | (__u64)generation << 32;
}

static __always_inline __u64 closed_by(__u64 flow, enum closed side)
{
	return flow | (__u64)side << WORD_CLOSED;
}

/* service_bits are those of a word that count the entries of a service. One service in
 * 1024 shares the bits of another service, and their shares of the table. */
static __always_inline __u64 service_bits(const struct tuple *t)
{
	__u64 h = service_hash(&t->vip, t->vip_port_be | (__u32)t->protocol << 16);

	return (h & WORD_SERVICE & ~WORD_UDP) | (t->protocol == IPPROTO_UDP ? WORD_UDP : 0);
}

static __always_inline __u64 established_word(const struct packet *p, __u32 server,
					      __u16 generation)
{
	return (server & WORD_SERVER) | WORD_ESTABLISHED | (__u64)generation << 16 |
	       (__u64)generation << 32 | service_bits(&p->t);
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

/* is_held: a SYN of that generation must not become another server's before the flow's own
 * server has released the flow. */
static __always_inline bool is_held(__u64 flow, __u16 generation)
{
	return flow & WORD_ESTABLISHED && !is_over(flow) && generation_in_word(flow) != generation;
}

/* flow_close adds the side that closed a flow to its word, whatever else changes meanwhile. */
__noinline int flow_close(__u64 hash, __u64 word, enum closed side)
{
	for (int i = 0; i < MAX_TRIES; i += 4) { /* few, for the verifier */
		if (!(word & WORD_ESTABLISHED) || closed_by(word, side) == word ||
		    flow_change(hash, word, closed_by(word, side)))
			break;
		pause_before(i);
		word = flow_find(hash, false);
	}
	return 0;
}
