/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* client_flows.h: flows with entries that the client's own packets make, so that no server needs an agent
 * (TRACK_CLIENT). The LB sees the client's side alone:
 *
 *   (none)        SYN, datagram      -> embryonic, with the first candidate
 *   (none)        other TCP packets  -> embryonic, with the presumed owner (enum bucket_layout)
 *   embryonic     the next packet    -> established
 *   established   FIN, RST           -> over, removed after `linger` without packets
 *   over          SYN                -> after a second of silence (none), and the SYN begins a flow;
 *                                       else still over, but waiting, with the same server
 *   waiting       the next packet    -> established
 *   waiting       SYN after 10 s     -> (none), as of an embryonic entry
 *
 * No other packet moves a flow to another server, but at a server that is down (lb/health.h): a SYN of
 * a flow that is embryonic or over, and any datagram. So a forged packet alone moves none. An entry that an agent's
 * signal made, by recovery, is steered in `as`, which ends the signalling. Where flows have
 * seats, that packet gives it a seat: the entry is then of the client's making. If the `as` is lost,
 * the signal comes again, and so does this. */
#pragma once
#include "lb/affinity.h"
#include "lb/counters.h"
#include "lb/flow.h"
#include "lb/insert.h"
#include "lb/learned_flows.h"
#include "lb/segment_list.h"
#include "lb/probe.h"
#include "packet/scratch.h"

/* An embryonic entry of the client's making expects no number, where a signal names a number.
 * Generation 1 keeps its word from being 0. */
#define KEPT_GENERATION 1

#define CLOSED_BITS (7ULL << WORD_CLOSED)

/* A search for a server's seat. */
struct seat_search {
	__u32 tally, server;
	__u32 found; /* 1 + the seat, or 0 */
};

/* next_seat is the callback of bpf_loop; 1 ends it. */
static long next_seat(__u64 i, struct seat_search *s)
{
	const struct tally *t = tally_at(s->tally);

	if (!t)
		return 1;
	s->found = i + 1;
	below(i, MAX_SEATS);
	if (READ_ONCE(t->seat[i].server) == s->server)
		return 1;
	s->found = 0;
	return 0;
}

/* take_seat counts a flow that was recovered at its server. A function of its own, as it is rare. */
__noinline int take_seat(const struct packet *p, __u32 tally, __u64 word)
{
	struct seat_search s = { .tally = tally, .server = server_in_word(word) };
	__u64 fresh;

	if (!p)
		return 0;
	bpf_loop(MAX_SEATS, next_seat, &s, 0);
	if (!s.found)
		return 0;
	fresh = opening_word(p, s.server, tally, s.found - 1, 0);
	fresh = (fresh & ~(WORD_EMBRYONIC | WORD_BRIEF)) | WORD_COUNTED;
	if (flow_learn(p->hash, word, fresh))
		count(LB_FLOW_SEATED);
	return 0;
}

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

/* is_embryonic: no server is known to have answered the flow. */
static __always_inline bool is_embryonic(__u64 word)
{
	return is_learned(word) ? word & WORD_EMBRYONIC : !(word & WORD_ESTABLISHED);
}

/* closed_bits are set in a word if its flow is over. */
static __always_inline __u64 closed_bits(__u64 word)
{
	return is_learned(word) ? WORD_CLIENT_CLOSED : CLOSED_BITS;
}

/* is_waiting: no server is known to have answered the latest SYN of a flow that is embryonic, or that
 * was over before. */
static __always_inline bool is_waiting(__u64 word)
{
	return is_embryonic(word) || (word & closed_bits(word) && word & WORD_BRIEF);
}

/* How long a flow that is over must be silent, in ticks, before a SYN begins a new flow: a second, so
 * that a FIN or RST that was forged costs a flow nothing as long as its client sends. */
#define REUSE_TICKS 4

/* leave ends a flow of a server that is down, so that the packet begins it again. */
__noinline int leave(const struct packet *p, __u64 word)
{
	if (!p || !flow_change(p->hash, word, 0))
		return false;
	count(LB_FLOW_MOVED);
	return true;
}

/* unless_down returns the word of a datagram's flow, or 0 if its server is down: the flow has ended. A
 * function of its own for the verifier. */
__noinline __u64 unless_down(const struct packet *p, __u64 word)
{
	return is_down(server_in_word(word)) && leave(p, word) ? 0 : word;
}

/* begins_again ends the flow of a SYN, which begins a new flow: a flow that is over and silent, for as
 * long as an embryonic flow lives if a SYN came last; or a flow that is embryonic or over and has a server
 * that is down or doubted. Else a SYN of a flow that is over counts as a new connection of that server. A function
 * of its own, as it is rare. */
__noinline int begins_again(const struct packet *p, __u64 word)
{
	__u32 server = server_in_word(word);
	bool waiting = is_waiting(word), over = word & closed_bits(word);

	if (!p)
		return false;
	if (waiting)
		note_repeated(server);
	if ((waiting || over) && is_doubted(server))
		return leave(p, word);
	if (over && flow_age(p->hash, word) >= (waiting ? EMBRYONIC_TICKS : REUSE_TICKS))
		return flow_change(p->hash, word, 0);
	if (over && !waiting)
		note_offered(server);
	return false;
}

/* observe_kept is observe_client for a flow that does not learn. */
static __always_inline __u64 observe_kept(const struct packet *p, __u64 word)
{
	__u64 fresh = word;

	if (!(word & WORD_ESTABLISHED))
		fresh = establish_kept(p, word);
	else if (p->kind == KIND_UDP)
		fresh &= ~WORD_BRIEF;
	if (fresh & WORD_ESTABLISHED && p->kind == KIND_TCP) {
		if (opens(p) && word & CLOSED_BITS)
			fresh |= WORD_BRIEF;
		else if (word & WORD_BRIEF && !opens(p))
			fresh &= ~(CLOSED_BITS | WORD_BRIEF);
		if (p->flags & TCP_FIN)
			fresh = closed_by(closed_by(fresh, CLOSED_CLIENT), CLOSED_SERVER);
		if (p->flags & TCP_RST)
			fresh = closed_by(fresh, CLOSED_RESET);
	}
	if (fresh != word)
		flow_change(p->hash, word, fresh);
	return fresh;
}

/* observe_client returns a flow's word after a packet of its client, or 0 for a SYN that begins
 * another flow. If another CPU changes the entry at once, its change stays. A function of its own, as
 * few packets need it. */
__noinline __u64 observe_client(const struct packet *p, __u64 word)
{
	__u64 fresh;

	if (!p || (opens(p) && begins_again(p, word)))
		return p ? 0 : word;
	fresh = is_learned(word) ? observe_learned(p, word) : observe_kept(p, word);
	if (p->kind == KIND_TCP && p->flags & TCP_ACK && !(p->flags & TCP_RST) &&
	    is_waiting(word) && !is_waiting(fresh))
		note_answered(server_in_word(word));
	return fresh;
}

/* steer_kept makes the server of a flow with that word a packet's destination; false if there is
 * none. */
static __always_inline bool steer_kept(const struct packet *p, const struct service *svc,
				       __u64 word, struct destination *d)
{
	__u64 was = word;

	if (word && ((word & (WORD_ESTABLISHED | WORD_BRIEF | CLOSED_BITS)) != WORD_ESTABLISHED ||
		     p->flags & (TCP_SYN | TCP_FIN | TCP_RST)))
		word = observe_client(p, word);
	*d = (struct destination){
		.server = server_in_word(word),
		.function = FN_DELIVER,
		.reason = was && !word && is_down(server_in_word(was)) ? LB_FLOW_MOVED : LB_STEER,
	};
	if (word & WORD_ESTABLISHED && !(word & WORD_KEPT)) {
		d->function = FN_ACK_STICKINESS;
		d->generation = generation_in_word(word);
		if (svc->tally && !(word & CLOSED_BITS))
			take_seat(p, svc->tally, word);
	}
	if (!word || server_at(d->server))
		return word;
	flow_change(p->hash, word, 0); /* the server left the pool */
	count(LB_STALE_REMOVED);
	return false;
}

/* keep adds an embryonic entry with a server, which counts in a seat (seat_of), and returns the
 * server that the flow has: not this server, if another CPU was first; or NO_SERVER, if there is no
 * slot for the entry. */
__noinline __u32 keep(const struct packet *p, __u32 server, __u32 tally, __u32 seat)
{
	__u64 word, service;

	if (!p)
		return server;
	word = embryonic_word(server, KEPT_GENERATION, 0);
	service = service_bits(&p->t);
	if (seat) {
		word = opening_word(p, server, tally, seat - 1, begins(p) ? date_now() : 0);
		service = word & WORD_SERVICE;
	}
	switch (flow_add(p->hash, word, service)) {
	case ADDED:
		count(LB_FLOW_BEGUN);
		if (opens(p))
			note_offered(server);
		if (seat)
			learn_begun(word);
		return server;
	case LINES_FULL:
		count(LB_TABLE_FULL);
		return NO_SERVER;
	default:
		word = flow_find(p->hash, false);
		return word ? server_in_word(word) : server;
	}
}

/* choose_first is choose_new, or the bucket of the server that has the client's other flows, or of a server that is to be
 * probed. A flow that has just
 * left a server that is down is no probe: its client has waited. A function of its own for the
 * verifier. */
__noinline __u64 choose_first(const struct packet *p, const struct service *svc, bool moved)
{
	__u64 probe = 0, known;

	if (!p || !svc)
		return 0;
	known = svc->affinity ? bucket_of_client(p, svc) : 0;
	if (known) {
		count(LB_FLOW_SAME_CLIENT);
		return known;
	}
	if (!moved && opens(p) && has_probe(svc))
		probe = take_probe(svc, bucket_of(p, svc));
	if (probe)
		count(LB_FLOW_PROBE);
	return probe ?: choose_new(p, svc, begins(p));
}

/* begin_flow makes a server the destination of a packet without an entry: the first candidate,
 * or for TCP's data the presumed owner; and adds an entry. Without an entry the flow's packets find
 * their server by the digest, so the first does, too. */
__noinline int begin_flow(const struct packet *p, const struct service *svc, struct destination *d)
{
	__u32 last, server = NO_SERVER;
	__u64 bucket;

	if (!p || !svc || !d)
		return 0;
	bucket = choose_first(p, svc, d->reason == LB_FLOW_MOVED);
	d->function = FN_DELIVER;
	d->generation = 0;
	d->reason = LB_DELIVER;
	last = members_of(bucket) - 1;
	if (begins(p)) {
		if (choices_of(bucket))
			server = named_member(bucket, 0);
	} else if (last < NAMED_MEMBERS) {
		server = named_member(bucket, last);
		d->reason = LB_RECOVER_PRESUMED;
	}
	d->server = server;
	if (server == NO_SERVER || p->kind == KIND_TOO_BIG || p->flags & (TCP_FIN | TCP_RST))
		return 0;
	last = begins(p) && last ? 0 : seat_of(bucket); /* which is the last member's */
	d->server = keep(p, server, svc->tally, last);
	if (remembers(svc) && d->server == server)
		remember_client(p, svc, server, last);
	if (d->server != NO_SERVER)
		return 0;
	bucket = choose_new(p, svc, false);
	last = svc->recovery == RECOVERY_HISTORY ? members_of(bucket) - 1 : 0;
	d->server = last < NAMED_MEMBERS ? named_member(bucket, last) : server;
	return 0;
}
