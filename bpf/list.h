/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* list.h: which servers a packet visits, in what order, and what each is asked.
 *
 *   question  rs  every server that may have the flow (6LB §IV: the candidates
 *                 of today's pool and those of earlier ones)
 *   offer     ca … cf  whoever had the five-tuple last, then the candidates
 *
 * Data of an unknown flow is a question, a SYN an offer, an unknown datagram a
 * question and then an offer. What does not fit the packet is left for another
 * round: the last segment brings the packet back here, with the place in the
 * list where to go on. */
#pragma once
#include "auth.h"
#include "nexthop.h"
#include "rewrite.h"
#include "service.h"

#define NOBODY 0xffffffff

/* XDP has 256 bytes before a frame and keeps 40 of them for itself (struct
 * xdp_frame): eleven segments fit, whatever the wire. */
#define MOST_SEGMENTS 11

enum laps { LAP_QUESTION = 1, LAP_OFFER = 2 };

struct plan {
	__u32 first;  /* server number that the offer visits first, or NOBODY */
	__u32 except; /* server number that is left out, or NOBODY */
	__u32 rotate; /* how far the order in each lap is turned; below 256 */
	__u32 from;   /* place in the list to start at */
	__u32 room;   /* segments that fit the packet */
	__u32 why;    /* enum counter, of sending it */
	__u16 generation;
	__u8 flags;  /* enum sid_flags */
	__u8 laps;   /* enum laps, or-ed */
	__u8 forced; /* the first so many that are offered must take it */
	__u8 zero[3];
};

enum listed {
	LISTED,
	LIST_EMPTY,   /* nobody to ask */
	LIST_TOO_BIG, /* not two segments fit */
	LIST_NO_HOP,  /* towards the first transit SID */
};

/* Places of the list: the question's members, the offer's first, its candidates. */
#define PLACE_FIRST MAX_MEMBERS
#define PLACE_CANDIDATES (PLACE_FIRST + 1)
#define PLACES (PLACE_CANDIDATES + MAX_CHOICES)

/* server_in returns the number of the server in a place of the list, or NOBODY. */
static __always_inline __u32 server_in(const struct plan *p, const struct bucket *b, __u64 place)
{
	__u32 i;

	if (place < PLACE_FIRST) {
		if (!(p->laps & LAP_QUESTION) || place >= b->members)
			return NOBODY;
		place = (place + p->rotate) % b->members;
		return place < MAX_MEMBERS ? b->server[place] : NOBODY;
	}
	if (!(p->laps & LAP_OFFER))
		return NOBODY;
	if (place == PLACE_FIRST)
		return p->first;
	i = place - PLACE_CANDIDATES;
	if (i >= b->choices || b->choices > MAX_CHOICES)
		return NOBODY;
	i = (i + p->rotate) % b->choices % MAX_CHOICES;
	return b->server[i] == p->first ? NOBODY : b->server[i];
}

/* bring_back makes the last segment return the packet to this LB. */
static __always_inline void bring_back(struct route *r, const struct plan *p, __u32 place)
{
	struct sid back = make_sid(self.locator_be, FN_RECOVER_STICKINESS, p->generation);

	back.flags = p->flags;
	back.report_be = bpf_htons(p->rotate << 8 | place);
	r->segment[(r->n - 1) % MAX_SEGMENTS] = back;
}

/* add_via puts the transit SIDs of a service in front. */
static __always_inline enum listed add_via(struct route *r, const struct service *svc)
{
	const struct next_hop *hop;

	for (__u32 i = 0; i < MAX_VIA && i < svc->vias; i++)
		__builtin_memcpy(&r->segment[i], &svc->via[i], sizeof(svc->via[i]));
	r->n = svc->vias;
	if (!r->n)
		return LISTED;
	hop = next_hop_to(&svc->via[0]);
	if (!hop)
		return LIST_NO_HOP;
	__builtin_memcpy(r->mac, hop->mac, sizeof(r->mac));
	return LISTED;
}

/* add_server appends a server's SID. */
static __always_inline void add_server(struct route *r, const struct server *s, enum function fn,
				       const struct plan *p)
{
	struct sid sid = make_sid(s->locator_be, fn, p->generation);

	sid.flags = p->flags;
	if (!r->n)
		__builtin_memcpy(r->mac, s->mac, sizeof(r->mac));
	r->segment[r->n % MAX_SEGMENTS] = sid;
	r->n++;
}

/* A list on its way. */
struct listing {
	struct route *r;
	const struct bucket *b;
	const struct plan *p;
	__u32 start;	/* segments before the servers */
	__u32 last;	/* place of the last server listed */
	__u32 offered;	/* servers in the lap of the offer */
	__u32 too_many; /* there was no room for one more */
};

/* list_place is the callback of bpf_loop; 1 ends the list. */
static long list_place(__u64 place, struct listing *l)
{
	const struct plan *p = l->p;
	__u32 number = place < p->from ? NOBODY : server_in(p, l->b, place);
	enum function fn = FN_RECOVER_STICKINESS;
	struct server *s;

	if (number == NOBODY || number == p->except)
		return 0;
	s = server_number(number);
	if (!s || !s->ready)
		return 0;
	l->too_many = l->r->n >= p->room;
	if (l->too_many)
		return 1;
	if (place >= PLACE_FIRST)
		fn = ++l->offered <= p->forced ? FN_CONNECT_FORCE : FN_CONNECT_AVAIL;
	add_server(l->r, s, fn, p);
	l->last = place;
	return 0;
}

/* list_servers fills the route by the plan. */
static __always_inline enum listed list_servers(struct route *r, const struct service *svc,
						const struct bucket *b, const struct plan *p)
{
	struct listing l = { .r = r, .b = b, .p = p };
	enum listed ok;

	r->wire = svc->wire;
	ok = add_via(r, svc);
	if (ok)
		return ok;
	l.start = r->n;
	bpf_loop(PLACES, list_place, &l, 0);
	if (r->n == l.start)
		return l.too_many ? LIST_TOO_BIG : LIST_EMPTY;
	if (l.too_many && r->n < l.start + 2)
		return LIST_TOO_BIG;
	if (l.too_many)
		bring_back(r, p, l.last);
	else if (l.offered)
		r->segment[(r->n - 1) % MAX_SEGMENTS].function_be = bpf_htons(FN_CONNECT_FORCE);
	return LISTED;
}

/* room_for is how many segments fit beside a packet. */
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
	return n < MOST_SEGMENTS ? n : MOST_SEGMENTS;
}
