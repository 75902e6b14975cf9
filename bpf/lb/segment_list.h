/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* segment_list.h: the servers that a packet visits, in order, and the function of each SID.
 *
 *   question  rs      every server that may have the flow (6LB §IV: the candidates of
 *                     today's pool and those of earlier pools)
 *   offer     ca … cf the server that had the five-tuple last, then the candidates
 *
 * Data of an unknown flow is a question, a SYN an offer, an unknown datagram a question
 * and then an offer. A server that is down (lb/health.h) is asked last, and about no datagram that may
 * begin a flow: the offer would wait behind it. If the list exceeds the packet's room, the last segment
 * returns the packet to this LB with the position at which the list continues. */
#pragma once
#include "core/limit.h"
#include "packet/auth.h"
#include "lb/counters.h"
#include "packet/nexthop.h"
#include "lb/members.h"
#include "packet/scratch.h"

/* Some drivers leave 192 bytes before a frame (ixgbe, i40e, ice); XDP keeps 40 (struct
 * xdp_frame): room for seven segments on either wire. */
#define MAX_LISTED 7

enum parts {
	PART_QUESTION = 1,
	PART_OFFER = 2
};

struct plan {
	__u32 first;  /* number of the server that the offer visits first, or NO_SERVER */
	__u32 except; /* number of the server that is left out, or NO_SERVER */
	__u32 rotate; /* rotation of each part's servers; below 256 */
	__u32 from;   /* position at which the list starts */
	__u32 reason; /* enum counter, of sending it */
	__u16 generation;
	__u8 flags;    /* enum sid_flags */
	__u8 parts;    /* enum parts, or-ed */
	__u8 forced;   /* number of offered servers, from the first, that must take it */
	__u8 of_first; /* enum sid_flags, of `first` */
	__u8 limit;    /* enum limit, of the question */
	__u8 zero;

	/* State of the walk. */
	__u32 members;				/* of the bucket */
	__u32 asked;				/* servers of the question */
	__u32 choices;				/* candidates of the offer */
	__u32 before;				/* 1 if `first` precedes them */
	__u32 asked_rotation, offered_rotation; /* rotation, modulo their numbers */
	__u32 room;				/* segments that fit the packet */
	__u32 last;				/* position of the last server listed */
	__u32 offered;				/* servers listed in the offer */
	__u32 too_many;				/* a server did not fit */
	__u32 key_id;				/* of the tag that signs it, or 0 */
	__u32 unready;				/* servers left out, without next hop */
	__u32 spent;				/* servers that are asked as often as they may */
	__u32 silent;				/* servers of the question that are down */
	__u32 late;				/* of these, listed */
};

/* In a map, as the verifier would follow each number on the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plan);
} plans SEC(".maps");

static __always_inline struct plan *plan_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&plans, &zero);
}

/* new_plan returns this CPU's plan, emptied. */
static __always_inline struct plan *new_plan(__u8 parts, enum counter reason)
{
	struct plan *p = plan_of_cpu();

	if (p)
		*p = (struct plan){
			.first = NO_SERVER, .except = NO_SERVER, .parts = parts, .reason = reason
		};
	return p;
}

enum listed {
	LISTED,
	LIST_EMPTY,   /* no server is ready */
	LIST_TOO_BIG, /* not even two segments fit */
	LIST_NO_HOP,  /* no next hop to the first transit SID */
	LIST_LIMITED, /* a server is asked as often as it may */
};

/* Positions: first the question's members, then `first` of the offer, then its candidates. */
#define POSITION_FIRST MAX_MEMBERS
#define POSITION_CANDIDATES (POSITION_FIRST + 1)

_Static_assert(POSITION_CANDIDATES + MAX_CHOICES <= POSITION_CHECK, "no server has that position");

/* The arguments of a walk over the list. */
struct listing {
	struct route *r;
	struct plan *p;
	const struct crowd *crowd; /* the members of the bucket */
	__u64 bucket;
	__u32 table; /* of the service */
};

/* add_server appends a server's SID. */
static __always_inline void add_server(struct route *r, const struct server *s, struct sid sid)
{
	sid.locator_be = s->locator_be;
	if (!r->n)
		__builtin_memcpy(r->mac, s->mac, sizeof(r->mac));
	*segment_of(r, r->n) = sid;
	r->n++;
}

/* server_in returns the number of the i-th server of the list, or NO_SERVER, and its position. */
static __always_inline __u32 server_in(const struct listing *l, __u32 i, __u32 *position)
{
	__u32 at, n = l->p->asked, number;

	if (i < n) {
		*position = i;
		at = i + l->p->asked_rotation;
	} else {
		i -= n;
		*position = POSITION_FIRST;
		if (l->p->before && !i)
			return l->p->first;
		i -= l->p->before;
		n = l->p->choices;
		*position = POSITION_CANDIDATES + i;
		at = i + l->p->offered_rotation;
	}
	if (at >= n)
		at -= n;
	number = crowd_member(l->crowd, at);
	return *position >= POSITION_CANDIDATES && number == l->p->first ? NO_SERVER : number;
}

/* question_of is the owner of questions to a server about flows of a service. */
static __always_inline __u64 question_of(__u32 table, __u32 server)
{
	return (__u64)table << 32 | server;
}

/* may_ask takes a token of a server for a question. The first server of a list that continues gave
 * its token before. */
static __always_inline bool may_ask(const struct listing *l, __u32 position, __u32 server)
{
	return position >= POSITION_FIRST || (position && position == l->p->from) ||
	       spend(l->p->limit, question_of(l->table, server));
}

/* leaves_out: a server left a check without an answer (lb/health.h), so no datagram asks it that is offered behind
 * the question. */
static __always_inline bool leaves_out(const struct server *s, const struct plan *p, __u32 position)
{
	return s && s->ready & DELIVERY_DOUBTED && position < POSITION_FIRST &&
	       p->limit == LIMIT_DATAGRAM;
}

/* list_server is the callback of bpf_loop; 1 ends the list. A segment is dropped where a server cannot be
 * asked, as it may be the owner and the last server would reset the flow; a datagram passes that server. */
static long list_server(__u64 i, struct listing *l)
{
	struct plan *p = l->p;
	enum function fn = FN_RECOVER_STICKINESS;
	__u32 position, number = server_in(l, i, &position);
	struct server *s;
	struct sid sid;

	if (number == NO_SERVER || number == p->except)
		return 0;
	s = server_at(number);
	if (s && s->ready & DELIVERY_DOWN && position < POSITION_FIRST) {
		p->silent++;
		return 0;
	}
	if (position < p->from || leaves_out(s, p, position))
		return 0;
	if (!s || delivery_of(s) != DELIVERY_AGENT) {
		p->unready += !!s;
		return 0;
	}
	p->too_many = l->r->n >= p->room;
	if (p->too_many)
		return 1;
	if (!may_ask(l, position, number)) {
		p->spent++;
		return p->limit != LIMIT_DATAGRAM;
	}
	if (position >= POSITION_FIRST)
		fn = ++p->offered <= p->forced ? FN_CONNECT_FORCE : FN_CONNECT_AVAIL;
	sid = make_sid(0, fn, p->generation);
	sid.flags = p->flags;
	if (position == POSITION_FIRST)
		sid.flags |= p->of_first;
	sid.key_id = p->key_id;
	add_server(l->r, s, sid);
	p->last = position;
	return 0;
}

/* list_silent is the callback of bpf_loop for the servers of a question that are down; 1 ends the
 * list. */
static long list_silent(__u64 i, struct listing *l)
{
	__u32 number = crowd_member(l->crowd, i);
	struct server *s = server_at(number);
	struct plan *p = l->p;
	struct sid sid;

	if (!s || number == p->except || s->ready != (DELIVERY_AGENT | DELIVERY_DOWN))
		return 0;
	if (l->r->n >= p->room) { /* another round asks them, or the first of them decides */
		p->too_many = !p->late;
		return 1;
	}
	if (!may_ask(l, 0, number))
		return 0;
	p->late++;
	sid = make_sid(0, FN_RECOVER_STICKINESS, p->generation);
	sid.flags = p->flags;
	sid.key_id = p->key_id;
	add_server(l->r, s, sid);
	return 0;
}

/* size_parts computes the number of servers of each part. */
static __always_inline void size_parts(struct plan *p, __u64 bucket)
{
	__u32 question = p->parts & PART_QUESTION, offer = p->parts / PART_OFFER;

	p->asked = question * p->members;
	p->choices = offer * choices_of(bucket);
	p->before = offer * (p->first != NO_SERVER);
	if (!p->rotate)
		return;
	if (p->asked)
		p->asked_rotation = p->rotate % p->asked;
	if (p->choices)
		p->offered_rotation = p->rotate % p->choices;
}

/* add_via begins the route with the transit SIDs of a service. */
__noinline int add_via(struct route *r, const struct service *svc)
{
	const struct next_hop *hop;

	if (!r || !svc)
		return LIST_NO_HOP;
	r->n = svc->vias;
	for (__u32 i = 0; i < MAX_VIA && i < svc->vias; i++)
		__builtin_memcpy(segment_of(r, i), &svc->via[i], sizeof(svc->via[i]));
	hop = next_hop_to(&svc->via[0]);
	if (!hop)
		return LIST_NO_HOP;
	__builtin_memcpy(r->mac, hop->mac, sizeof(r->mac));
	return LISTED;
}

/* wire_of is the way to carry a packet of a service: never inside a packet with options, as
 * hop-by-hop options must stay right behind the IPv6 header (RFC 8200 §4.1). */
static __always_inline __u8 wire_of(const struct packet *p, const struct service *svc)
{
	return p->options ? WIRE_ENCAP : svc->wire;
}

/* begin_route empties the route of a packet, but for the transit SIDs of its service. */
static __always_inline enum listed begin_route(struct route *r, const struct packet *p,
					       const struct service *svc)
{
	r->wire = wire_of(p, svc);
	r->n = 0;
	return svc->vias ? add_via(r, svc) : LISTED;
}

/* return_to_lb replaces the last segment by this LB's rs. */
static __always_inline void return_to_lb(struct route *r, const struct plan *p)
{
	struct sid back = make_sid(self.locator_be, FN_RECOVER_STICKINESS, p->generation);

	back.flags = p->flags;
	back.key_id = p->key_id;
	back.report_be = bpf_htons(p->rotate << 8 | p->last);
	*segment_of(r, r->n - 1) = back;
}

/* list_servers fills the route with the servers of the plan. */
static __always_inline enum listed list_servers(struct listing *l, const struct packet *packet,
						const struct service *svc)
{
	enum listed ok = begin_route(l->r, packet, svc);
	struct plan *p = l->p;
	__u32 start = l->r->n;

	if (ok)
		return ok;
	size_parts(p, l->bucket);
	bpf_loop(p->asked + p->before + p->choices, list_server, l, 0);
	if (p->spent && p->limit != LIMIT_DATAGRAM)
		return LIST_LIMITED;
	if (p->spent)
		p->reason = LB_OFFER_UNASKED;
	if (p->silent && !p->offered && !p->too_many)
		bpf_loop(p->asked, list_silent, l, 0);
	if (l->r->n == start)
		return p->too_many ? LIST_TOO_BIG : p->unready ? LIST_NO_HOP : LIST_EMPTY;
	if (p->too_many && l->r->n < start + 2)
		return LIST_TOO_BIG;
	if (p->too_many)
		return_to_lb(l->r, p);
	else if (p->offered)
		segment_of(l->r, l->r->n - 1)->function_be = bpf_htons(FN_CONNECT_FORCE);
	return LISTED;
}

/* room_for returns the number of segments that fit beside a packet. */
static __always_inline __u32 room_for(const struct packet *p, __u8 wire)
{
	__u32 fixed = wire == WIRE_INSERT ? route_bytes(0, WIRE_INSERT)
					  : route_bytes(2, WIRE_ENCAP) - 2 * sizeof(struct sid);
	__u32 used = p->length + fixed, n;

	if (p->length + route_bytes(1, wire) > self.mtu)
		return 0;
	if (used + 2 * sizeof(struct sid) > self.mtu)
		return 1;
	n = (self.mtu - used) / sizeof(struct sid);
	return n < MAX_LISTED ? n : MAX_LISTED;
}
