/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* dispatch.h: the servers of a client's packet: the server that has its flow, those that may have
 * it, or the candidates of a new flow. */
#pragma once
#include "lb/affinity.h"
#include "lb/flow.h"
#include "lb/client_flows.h"
#include "lb/probe.h"
#include "lb/seen_before.h"
#include "lb/send.h"

/* limit_of is the limit of questions about a packet that came so often before. */
static __always_inline enum limit limit_of(const struct packet *p, __u32 times)
{
	if (p->kind == KIND_UDP)
		return LIMIT_DATAGRAM;
	if (times)
		return LIMIT_REPEATED;
	return p->payload ? LIMIT_QUESTION : LIMIT_STRAY;
}

/* offer_as_before offers a new connection to the server that has its client's others, which must take it; false if
 * none is known. */
static __always_inline bool offer_as_before(struct plan *plan, const struct packet *p,
					    const struct service *svc)
{
	__u64 bucket = svc->affinity ? bucket_of_client(p, svc) : 0;

	if (!bucket)
		return false;
	plan->first = named_member(bucket, 0);
	plan->forced = 1;
	if (p->kind != KIND_UDP)
		plan->reason = LB_OFFER_SAME_CLIENT;
	return true;
}

/* Datagrams that came so often before are offered to others. */
#define ROTATED_DATAGRAMS 3

/* recover asks the servers that may have a packet's flow. A packet that comes again had no
 * answer, so the list is rotated: a host of the list may be down. Datagrams are often repeated,
 * so theirs is rotated from the fourth on, and then every second is offered without a
 * question. */
__noinline int recover(const struct packet *p, const struct service *svc)
{
	struct plan *plan = new_plan(PART_QUESTION, LB_RECOVER);

	if (!plan || !p || !svc)
		return XDP_ABORTED;
	if (p->kind != KIND_TOO_BIG)
		plan->rotate = seen_before(p);
	if (p->kind == KIND_UDP && plan->rotate < ROTATED_DATAGRAMS)
		offer_as_before(plan, p, svc);
	plan->limit = limit_of(p, plan->rotate);
	if (p->kind == KIND_UDP) {
		plan->parts = PART_QUESTION | PART_OFFER;
		plan->reason = LB_OFFER_DATAGRAM;
		if (plan->rotate >= ROTATED_DATAGRAMS && plan->rotate % 2)
			plan->parts = PART_OFFER;
		plan->rotate = plan->rotate >= ROTATED_DATAGRAMS ? plan->rotate / 2 : 0;
	}
	return TO_LIST;
}

/* leaves_first: the server of a flow's entry is down, so a SYN does not visit it first; nor, if the SYN may
 * become another server's at once, a server in doubt. A flow that a SYN must not take from its server has no entry
 * afterwards: should that server live after all, it is found by a question. */
static __always_inline bool leaves_first(const struct packet *p, __u64 word, __u16 generation)
{
	bool held = is_held(word, generation);
	__u32 marks = held ? DELIVERY_DOWN : DELIVERY_DOWN | DELIVERY_DOUBTED;

	if (!is_marked(server_in_word(word), marks))
		return false;
	if (held)
		leave(p, word);
	return true;
}

/* note_first counts an offer at its first server. From the second repetition on another candidate is
 * first. */
static __always_inline void note_first(__u32 server, __u32 times)
{
	if (times == 1)
		note_repeated(server);
	else if (!times)
		note_offered(server);
}

/* note_offer counts the offer of a plan that names no first server at the first candidate. */
static __always_inline void note_offer(const struct plan *plan, __u64 bucket, __u32 times)
{
	if (plan->first == NO_SERVER && choices_of(bucket))
		note_first(named_member(bucket, 0), times);
}

/* begin_probe offers a new connection to a server that is down, if it is to be probed. The server
 * must take it, so that its answer shows. */
static __always_inline void begin_probe(struct plan *plan, const struct service *svc, __u64 bucket)
{
	__u64 probe = take_probe(svc, bucket);

	if (!probe)
		return;
	plan->first = named_member(probe, 0);
	plan->forced = 1;
	plan->reason = LB_OFFER_PROBE;
	note_offered(plan->first);
}

/* offer_again offers a connection that has an entry, or a repeated SYN, or to a list that is
 * not of two, or a probe. A repeated SYN has the retry bit: servers that took or passed on the connection
 * do so again. From the third SYN on the list is rotated, and every second time its first
 * server must take the connection, as a later server may be down. It is a separate function, as it is
 * rare. */
__noinline int offer_again(const struct packet *p, const struct service *svc, __u64 bucket,
			   __u64 word, __u32 times)
{
	struct plan *plan = new_plan(PART_OFFER, LB_OFFER);

	if (!plan || !p || !svc)
		return XDP_ABORTED;
	plan->generation = generation_of(p->seq);
	if (word && leaves_first(p, word, plan->generation))
		word = 0;
	else if (!word && times < ROTATED_FROM && offer_as_before(plan, p, svc))
		note_first(plan->first, times);
	else if (!word && !times)
		begin_probe(plan, svc, bucket);
	if (times) {
		plan->flags = SID_RETRY;
		plan->rotate = times / 2;
		plan->forced |= times > 1 && times % 2;
		plan->reason = LB_OFFER_RETRY;
	}
	if (word && times < 2) { /* otherwise that server did not answer */
		plan->first = server_in_word(word);
		plan->reason = LB_OFFER_AGAIN;
		if (is_held(word, plan->generation) &&
		    !spend(LIMIT_HELD, question_of(svc->table, plan->first))) {
			plan->reason = LB_OFFER_UNMARKED;
		} else if (is_held(word, plan->generation)) {
			plan->of_first = SID_HELD;
			flow_change(p->hash, word, announce(word, plan->generation));
		}
	}
	note_offer(plan, bucket, times);
	return TO_LIST;
}

/* tag_of_last signs an offer to two servers: its SRH has the second segment alone. */
__noinline __u64 tag_of_last(const struct key *key, const struct packet *p, const struct sid *last)
{
	struct scratch *scr = scratch();

	if (!scr || !last)
		return 0;
	scr->route.list[0] = *last;
	scr->route.signer_be = self.locator_be;
	return route_tag(key, p, &scr->route, 0, 1);
}

/* offer_to_two writes the frame of send_listed for two candidates, without a list. The second
 * candidate must take the connection. */
static __always_inline int offer_to_two(struct xdp_md *ctx, struct packet *p,
					const struct service *svc, __u64 bucket)
{
	const struct server *first = server_at(named_member(bucket, 0)), *second;
	const struct signal_key *k = signing_key();
	__u16 generation = generation_of(p->seq);
	__be64 tag = UNTAGGED;
	enum rewritten done;
	struct sid to, last;

	second = server_at(named_member(bucket, 1));
	if (!first || first->ready != DELIVERY_AGENT || !second ||
	    second->ready != DELIVERY_AGENT || p->length + route_bytes(2, WIRE_ENCAP) > self.mtu)
		return offer_again(p, svc, bucket, 0, 0);
	note_offered(named_member(bucket, 0));
	to = make_sid(first->locator_be, FN_CONNECT_AVAIL, generation);
	last = make_sid(second->locator_be, FN_CONNECT_FORCE, generation);
	if (k) {
		to.key_id = last.key_id = k->id;
		tag = tag_of_last(&k->key, p, &last);
	}
	done = dec_hop_limit(ctx, p);
	if (!done)
		done = add_outer(ctx, p, route_bytes(2, WIRE_ENCAP) - sizeof(struct ipv6hdr), tag,
				 &to, first->mac, IPPROTO_ROUTING);
	if (!done)
		done = write_last_segment(ctx, p, &last);
	return done ? rewrite_failed(done) : transmit(LB_OFFER);
}

/* offer offers a new connection to its candidates. The flow's hints, its candidates and its
 * SYN's slot are seldom in the cache, so they are read in a row. */
static __always_inline int offer(struct xdp_md *ctx, struct packet *p, const struct service *svc)
{
	__u64 word = flow_seek_inline(p->hash);
	__u64 bucket = choose(p, svc);
	__u32 times = seen_before(p);

	if (word || times || choices_of(bucket) != 2 || svc->wire != WIRE_ENCAP || svc->vias ||
	    svc->affinity || has_probe(svc))
		return offer_again(p, svc, bucket, word, times);
	return offer_to_two(ctx, p, svc, bucket);
}

/* acknowledges: the packet acknowledges the server's SYN-ACK, which establishes the flow. */
static __always_inline bool acknowledges(const struct packet *p, __u64 embryonic)
{
	return p->kind == KIND_UDP ||
	       (p->kind == KIND_TCP && p->flags & TCP_ACK && p->ack == expected_ack(embryonic));
}

/* flow_establish returns the word of an embryonic entry after a packet of its flow: established,
 * unchanged, or 0 if the packet acknowledges something else. That belongs to a connection with
 * another server, which the entry's server would reset. */
static __always_inline __u64 flow_establish(const struct packet *p, __u64 embryonic)
{
	__u64 word = established_word(p, server_in_word(embryonic), generation_in_word(embryonic));

	if (p->kind == KIND_UDP)
		word |= WORD_BRIEF;

	if (acknowledges(p, embryonic)) {
		if (flow_change(p->hash, embryonic, word))
			count(LB_FLOW_ESTABLISHED);
		return word;
	}
	return p->kind == KIND_TCP && p->flags & TCP_ACK ? 0 : embryonic;
}

/* flow_advance returns the word of a flow's entry after a packet that may change it: of an
 * embryonic flow, or of a flow that only two datagrams have met. A function of its own, as it is
 * rare. */
__noinline __u64 flow_advance(const struct packet *p, __u64 word)
{
	if (!p)
		return word;
	if (!(word & WORD_ESTABLISHED))
		return flow_establish(p, word);
	if (p->kind != KIND_UDP)
		return word;
	flow_change(p->hash, word, word & ~WORD_BRIEF);
	return word & ~WORD_BRIEF;
}

/* flow_of returns the word of a packet's flow after the packet, or 0. */
static __always_inline __u64 flow_of(const struct packet *p, __u64 word)
{
	if (word && (word & (WORD_ESTABLISHED | WORD_BRIEF)) != WORD_ESTABLISHED)
		word = flow_advance(p, word);
	else if (both_closed(word) && p->payload) /* perhaps of a later connection */
		return 0;
	if (p->kind == KIND_TCP && p->flags & TCP_FIN)
		flow_close(p->hash, word, CLOSED_CLIENT);
	return word;
}

/* steer makes the server of a flow with that word a packet's destination; false if there is none. */
static __always_inline bool steer(const struct packet *p, __u64 word, struct destination *d)
{
	word = flow_of(p, word);
	*d = (struct destination){
		.server = server_in_word(word),
		.generation = generation_in_word(word),
		.function = FN_ACK_STICKINESS,
		.reason = LB_STEER,
	};
	if (!word || server_at(d->server))
		return word;
	flow_change(p->hash, word, 0); /* the server left the pool */
	count(LB_STALE_REMOVED);
	return false;
}

/* How often stand_in looks for another server: where half are down, one packet in 65,536 finds none. */
#define STAND_INS 16

/* The arguments of next_stand_in. */
struct standing {
	const struct service *svc;
	__u64 hash;
	__u32 server;
};

/* next_stand_in is the callback of bpf_loop; 1 ends it. */
static long next_stand_in(__u64 i, struct standing *s)
{
	__u64 bucket;

	s->hash = mix(s->hash);
	bucket = bucket_at(s->svc, s->hash);
	if (choices_of(bucket))
		s->server = named_member(bucket, 0);
	return !is_down(s->server);
}

/* stand_in returns a server, or the server that has its packets of a service without flows while it is
 * down, by the digest mixed again: packets of other servers stay where they are. A function of its own,
 * as it is rare. */
__noinline __u32 stand_in(const struct packet *p, const struct service *svc, __u32 server)
{
	struct standing s = { .svc = svc, .server = server };

	if (!p || !svc || !is_down(server))
		return server;
	s.hash = stateless_hash(p, svc);
	bpf_loop(STAND_INS, next_stand_in, &s, 0);
	return s.server;
}

/* first_candidate makes the first candidate a packet's destination. Its SID is one
 * End.DT6 a server (RFC 8986 §4.6), which needs no agent. */
static __always_inline void first_candidate(const struct packet *p, const struct service *svc,
					    struct destination *d)
{
	__u64 bucket = choose(p, svc);

	*d = (struct destination){
		.server = choices_of(bucket) ? named_member(bucket, 0) : NO_SERVER,
		.function = FN_DELIVER,
		.reason = LB_DELIVER,
	};
	d->server = stand_in(p, svc, d->server);
}

/* For an action: the packet begins a flow whose entry the client's packets make. */
#define TO_KEPT (-4)

/* begin_kept begins the flow of this CPU's packet, without an entry, and sends the packet. */
static __always_inline int begin_kept(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	const struct service *svc = scr ? service_of(&scr->packet) : NULL;

	if (!svc) /* removed meanwhile */
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	begin_flow(&scr->packet, svc, &scr->destination);
	return send_to(ctx, &scr->packet, svc, &scr->destination);
}

/* send_unknown sends a packet without an entry. */
static __always_inline int send_unknown(const struct packet *p, const struct service *svc)
{
	if (tracking_of(svc) == TRACK_FLOWS || (!opens(p) && svc->recovery == RECOVERY_AGENTS))
		return recover(p, svc);
	return TO_KEPT;
}

/* dispatch sends a packet of a service to the server of its flow, or to those that may
 * take or have it. */
static __always_inline int dispatch(struct xdp_md *ctx, struct packet *p, const struct service *svc,
				    struct destination *d)
{
	enum tracking tracking = tracking_of(svc);
	__u64 word = 0;

	if (tracking == TRACK_UNKNOWN)
		return verdict(LB_DROP_UNKNOWN_DISPATCH, XDP_DROP);
	if (tracking == TRACK_FLOWS && opens(p))
		return offer(ctx, p, svc);
	if (tracking != TRACK_NONE)
		word = p->kind == KIND_TOO_BIG || opens(p)
			       ? flow_find(p->hash, false) /* begins_again reads its date */
			       : flow_find_inline(p->hash, true, NULL);
	if (word && p->kind == KIND_UDP)
		word = unless_down(p, word);
	if (tracking == TRACK_NONE)
		first_candidate(p, svc, d);
	else if (tracking == TRACK_CLIENT ? !steer_kept(p, svc, word, d) : !steer(p, word, d))
		return send_unknown(p, svc);
	if (word && remembers(svc))
		remember_flow(p, svc, word);
	return send_to(ctx, p, svc, d);
}
