/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* kept.h: flows with entries that the client's own packets make, so that no server needs an agent
 * (TRACK_CLIENT). The LB sees the client's side alone:
 *
 *   (none)        SYN, datagram      -> embryonic, with the first candidate
 *   (none)        other TCP packets  -> embryonic, with the presumed owner (enum bucket_layout)
 *   embryonic     the next packet    -> established
 *   established   FIN, RST           -> over, removed after `linger` without packets
 *   over          SYN                -> established: the five-tuple stays with its server
 *
 * No packet moves a flow to another server, so a forged one cannot. An entry that an agent's
 * signal made, by recovery, is steered in `as`, which ends the signalling. */
#pragma once
#include "lb/counters.h"
#include "lb/flow.h"
#include "lb/insert.h"
#include "lb/list.h"
#include "packet/scratch.h"

/* The entry is of the client's making: its packets go in dt. An embryonic one expects no number,
 * where a signal names one. Generation 1 keeps its word from being 0. */
#define WORD_KEPT (1ULL << 63)
#define KEPT_GENERATION 1

#define CLOSED_BITS (7ULL << WORD_CLOSED)

/* establish_kept returns the word of an embryonic entry after the next packet of its client.
 * A repeated SYN is no sign that the server answered. */
static __always_inline __u64 establish_kept(const struct packet *p, __u64 word)
{
	__u64 kept = expected_ack(word) ? 0 : WORD_KEPT;

	if (opens(p) || p->kind == KIND_TOO_BIG || p->flags & TCP_RST)
		return word;
	count(LB_FLOW_ESTABLISHED);
	if (p->kind == KIND_UDP)
		kept |= WORD_BRIEF;
	return established_word(p, server_in_word(word), generation_in_word(word)) | kept;
}

/* observe_client returns a flow's word after a packet of its client. If another CPU changes the
 * entry at once, its change stays. A function of its own, as few packets need it. */
__noinline __u64 observe_client(const struct packet *p, __u64 word)
{
	__u64 fresh = word;

	if (!p)
		return word;
	if (!(word & WORD_ESTABLISHED))
		fresh = establish_kept(p, word);
	else if (p->kind == KIND_UDP)
		fresh &= ~WORD_BRIEF;
	if (fresh & WORD_ESTABLISHED && p->kind == KIND_TCP) {
		if (opens(p))
			fresh &= ~CLOSED_BITS;
		if (p->flags & TCP_FIN)
			fresh = closed_by(closed_by(fresh, CLOSED_CLIENT), CLOSED_SERVER);
		if (p->flags & TCP_RST)
			fresh = closed_by(fresh, CLOSED_RESET);
	}
	if (fresh != word)
		flow_change(p->hash, word, fresh);
	return fresh;
}

/* steer_kept makes the server of a flow with that word a packet's destination; false if there is
 * none. */
static __always_inline bool steer_kept(const struct packet *p, __u64 word, struct destination *d)
{
	if (word && ((word & (WORD_ESTABLISHED | WORD_BRIEF)) != WORD_ESTABLISHED ||
		     p->flags & (TCP_SYN | TCP_FIN | TCP_RST)))
		word = observe_client(p, word);
	*d = (struct destination){
		.server = server_in_word(word),
		.function = FN_DELIVER,
		.reason = LB_STEER,
	};
	if (word & WORD_ESTABLISHED && !(word & WORD_KEPT)) {
		d->function = FN_ACK_STICKINESS;
		d->generation = generation_in_word(word);
	}
	if (!word || server_at(d->server))
		return word;
	flow_change(p->hash, word, 0); /* the server left the pool */
	count(LB_STALE_REMOVED);
	return false;
}

/* keep adds an embryonic entry, and returns the server that the flow has: another one, if
 * another CPU was first. */
__noinline __u32 keep(const struct packet *p, __u32 server)
{
	__u64 word;

	if (!p)
		return server;
	switch (flow_add(p->hash, embryonic_word(server, KEPT_GENERATION, 0),
			 service_bits(&p->t))) {
	case ADDED:
		count(LB_FLOW_BEGUN);
		return server;
	case LINES_FULL:
		count(LB_TABLE_FULL);
		return server;
	default:
		word = flow_find(p->hash, false);
		return word ? server_in_word(word) : server;
	}
}

/* begin_flow makes a server the destination of a packet without an entry: the first candidate,
 * or for TCP's data the presumed owner; and adds an entry. */
__noinline int begin_flow(const struct packet *p, const struct service *svc, struct destination *d)
{
	__u64 bucket;
	__u32 last;

	if (!p || !svc || !d)
		return 0;
	bucket = choose(p, svc);
	d->server = NO_SERVER;
	d->function = FN_DELIVER;
	d->generation = 0;
	d->reason = LB_DELIVER;
	last = members_of(bucket) - 1;
	if (opens(p) || p->kind == KIND_UDP) {
		if (choices_of(bucket))
			d->server = named_member(bucket, 0);
	} else if (last < NAMED_MEMBERS) {
		d->server = named_member(bucket, last);
		d->reason = LB_RECOVER_PRESUMED;
	}
	if (d->server == NO_SERVER || p->kind == KIND_TOO_BIG || p->flags & (TCP_FIN | TCP_RST))
		return 0;
	d->server = keep(p, d->server);
	return 0;
}
