/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* affinity.h: `affinity: client`: a client's new connections go to the server that has its others, until no packet
 * came from it for the service's `affinity_time`, or the server gets no new flows of the service: it drains, is down or
 * doubted, or left. The first connection goes as the dispatch has it:
 *
 *   TRACK_NONE, single   by the client's hash (choose/by_client.h): there is nothing to remember
 *   seated               the server that was chosen is remembered with its seat
 *   hunt                 the server that took the connection, as its cs shows, is offered the client's next connections, and must
 *                        take them; those that begin before that cs are offered as the first
 *
 * Records are in an LRU map, pinned with the flows: a stranger who forges clients can make an LB forget others'
 * records, and no more. */
#pragma once
#include "lb/members.h"
#include "lb/health.h"
#include "lb/flow.h"
#include "lb/occupancy.h"

#define CLIENTS 65536

struct client {
	__u32 server;
	__u16 seat; /* 1 + that in the service's tally; 0: it has none */
	__u16 seen; /* as of an entry of the flow table */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, CLIENTS);
	__type(key, __u64);
	__type(value, struct client);
} clients SEC(".maps");

/* remembers: the service has servers of clients to remember. */
static __always_inline bool remembers(const struct service *svc)
{
	return svc->affinity && (svc->tally || tracking_of(svc) == TRACK_FLOWS);
}

/* is_choice: a server is a candidate of the flows with a hash. */
static __always_inline bool is_choice(const struct service *svc, __u64 hash, __u32 server)
{
	__u64 bucket = bucket_at(svc, hash), rest = 0;
	__u32 slot = svc->table, choices = choices_of(bucket), named = NAMED_MEMBERS;

	if (members_of(bucket) > NAMED_MEMBERS) {
		rest = element_of(slot, rest_of(bucket));
		named = FIRST_MEMBERS;
	}
	for (__u32 i = 0; i < MAX_CHOICES; i++) {
		__u32 member = i < named ? named_member(bucket, i) : rest & 0xffff;

		if (i >= named)
			rest >>= 16;
		if (i < choices && member == server)
			return true;
	}
	return false;
}

/* alone_in_bucket returns the bucket of a server alone, or 0 if it gets no new flows of the service, of a client with
 * that hash. */
__noinline __u64 alone_in_bucket(const struct service *svc, __u64 hash, __u32 server, __u32 seat)
{
	__u64 alone = 1ULL << CHOICES_SHIFT | 1ULL << MEMBERS_SHIFT | (server & WORD_SERVER);
	const struct tally *t;
	__u64 at = seat - 1ULL;

	if (!svc || is_doubted(server))
		return 0;
	if (!svc->tally)
		return is_choice(svc, hash, server) ? alone : 0;
	t = tally_at(svc->tally);
	if (!t || !seat)
		return 0;
	below(at, MAX_SEATS);
	if (READ_ONCE(t->seat[at].server) != server || !READ_ONCE(t->seat[at].inverse))
		return 0;
	return alone | (__u64)seat << SEAT_SHIFT;
}

/* fresh_client returns the record of a packet's client, or NULL. */
static __always_inline struct client *fresh_client(const struct service *svc, __u64 hash)
{
	struct client *c = bpf_map_lookup_elem(&clients, &hash);

	return c && (__u16)(seen_now() - c->seen) < svc->affinity ? c : NULL;
}

/* bucket_of_client returns the bucket of the server that has a client's connections, alone; or 0. A function of its
 * own, as few services have affinity. */
__noinline __u64 bucket_of_client(const struct packet *p, const struct service *svc)
{
	const struct client *c;
	__u64 hash;

	if (!p || !svc || !remembers(svc))
		return 0;
	hash = hash_of_client(p);
	c = fresh_client(svc, hash);
	return c ? alone_in_bucket(svc, hash, c->server, c->seat) : 0;
}

/* remember_client notes the server of a client's flow, unless other flows of the client have another server that gets
 * new flows. */
__noinline int remember_client(const struct packet *p, const struct service *svc, __u32 server,
			       __u32 seat)
{
	struct client now = { .server = server, .seat = seat, .seen = seen_now() }, *c;
	__u64 hash;

	if (!p || !svc)
		return 0;
	hash = hash_of_client(p);
	c = fresh_client(svc, hash);
	if (c && c->server == server && c->seat == seat) {
		if (c->seen != now.seen)
			c->seen = now.seen;
		return 0;
	}
	if (!alone_in_bucket(svc, hash, server, seat) ||
	    (c && alone_in_bucket(svc, hash, c->server, c->seat)))
		return 0;
	bpf_map_update_elem(&clients, &hash, &now, BPF_ANY);
	return 0;
}

/* remember_flow is remember_client by the word of a flow's entry. */
static __always_inline void remember_flow(const struct packet *p, const struct service *svc,
					  __u64 word)
{
	if (word & WORD_ESTABLISHED)
		remember_client(p, svc, server_in_word(word),
				is_learned(word) ? 1 + seat_in_word(word) : 0);
}
