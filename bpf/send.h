/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* send.h: how the LB sends: into the SR domain along a route, and out of it to
 * the client. */
#pragma once
#include "count.h"
#include "list.h"
#include "toobig.h"
#include "work.h"

/* spoilt is the verdict on a packet that could not be rewritten. */
static __always_inline int spoilt(enum rewritten how)
{
	switch (how) {
	case HOPS_SPENT:
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	case CONGESTED:
		return verdict(LB_DROP_CONGESTED, XDP_DROP);
	case NO_ROOM:
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);
	default:
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	}
}

/* too_big answers a packet that is longer than its route allows. It may have
 * come from a server, so the answer takes the client's way, not its own back. */
static __always_inline int too_big(struct xdp_md *ctx, struct packet *p, const struct service *svc)
{
	const struct next_hop *hop;

	if (p->kind == KIND_TOO_BIG) /* no error about an error (RFC 4443 §2.4) */
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	hop = next_hop_to(&p->t.client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (write_too_big(ctx, p, svc->mtu) || link_to(ctx, hop->mac, p->family))
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	return transmit(LB_TOO_BIG);
}

/* send_on forwards a client's packet along r (RFC 2473 §3.1: a hop), signed if
 * its last segment names a key. */
static __always_inline int send_on(struct xdp_md *ctx, struct packet *p, const struct service *svc,
				   const struct route *r, enum counter why)
{
	const struct signal_key *k = NULL;
	enum rewritten done;

	if (r->segment[(r->n - 1) % MAX_SEGMENTS].key_id)
		k = signing_key();

	if (p->length + route_bytes(r->n, r->wire) > self.mtu)
		return too_big(ctx, p, svc);
	done = age(ctx, p, 1, p->class);
	if (!done)
		done = put_on(ctx, p, r, k ? &k->key : NULL);
	return done ? spoilt(done) : transmit(why);
}

/* sign_list writes the id of the signing key into the servers' SIDs. */
static __always_inline void sign_list(struct route *r, const struct service *svc)
{
	const struct signal_key *k = signing_key();

	for (__u32 i = 0; k && i < MAX_SEGMENTS && i < r->n; i++)
		if (i >= svc->vias)
			r->segment[i].key_id = k->id;
}

/* send_listed sends a packet to the servers of a plan. This and send_to are
 * functions of their own, so that the verifier looks at each once; hence the
 * tests for NULL, which never is. */
__noinline int send_listed(struct xdp_md *ctx, struct packet *p, const struct service *svc,
			   struct plan *plan)
{
	struct work *w = workplace();
	const struct bucket *b;
	struct route *r;
	enum listed how;

	if (!p || !svc || !plan || !w)
		return XDP_ABORTED;
	r = &w->route;
	b = bucket_of(svc, &p->t);
	if (!b)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	if (b->members < 2) /* nobody else: who gave it back has the last word */
		plan->except = NOBODY;
	plan->room = room_for(p, svc->wire);
	how = plan->room ? list_servers(r, svc, b, plan) : LIST_TOO_BIG;
	if (how == LIST_EMPTY)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	if (how == LIST_NO_HOP)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (how == LIST_TOO_BIG)
		return too_big(ctx, p, svc);
	sign_list(r, svc);
	return send_on(ctx, p, svc, r, plan->why);
}

/* What one server is sent. */
struct order {
	__u32 server;
	__u32 function; /* enum function */
	__u32 why;	/* enum counter */
	__u16 generation;
	__u16 zero;
};

/* send_to sends a packet to one server. */
__noinline int send_to(struct xdp_md *ctx, struct packet *p, const struct service *svc,
		       const struct order *o)
{
	struct work *w = workplace();
	struct plan plan = {};
	struct server *s;
	struct route *r;

	if (!p || !svc || !o || !w)
		return XDP_ABORTED;
	r = &w->route;
	s = server_number(o->server);
	if (!s)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	if (!s->ready || add_via(r, svc))
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	r->wire = svc->wire;
	plan.generation = o->generation;
	add_server(r, s, o->function, &plan);
	if (o->function == FN_REJECT)
		sign_list(r, svc);
	return send_on(ctx, p, svc, r, o->why);
}
