/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* send.h: forwarding: into the SR domain along a route, and errors to the client. */
#pragma once
#include "core/limit.h"
#include "lb/counters.h"
#include "lb/segment_list.h"
#include "packet/cut_segment.h"
#include "packet/icmp.h"

/* rewrite_failed is the verdict on a packet that could not be rewritten. */
__noinline int rewrite_failed(enum rewritten how)
{
	switch (how) {
	case HOP_LIMIT_EXCEEDED:
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	case CONGESTED:
		return verdict(LB_DROP_CONGESTED, XDP_DROP);
	case NO_HEADROOM:
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);
	default:
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	}
}

/* is_for_long: lb_long can send a packet that is too long for XDP. */
static __always_inline bool is_for_long(const struct packet *p)
{
	return (p->divisible || p->length > self.mtu) && p->kind != KIND_TOO_BIG;
}

/* to_long leaves a packet to lb_long, which the kernel's stack runs next. */
static __always_inline int to_long(struct xdp_md *ctx, const struct packet *p)
{
	__u8 here[ETH_ALEN];

	own_mac(here);
	if (link_to(ctx, here, p->family))
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	return verdict(LB_PASS_LONG, XDP_PASS);
}

/* may_answer: the sender of a packet may have an answer of a kind. Of refusals and echo replies the owner
 * is the VIP, as a stranger chooses ports; of all other kinds it is the service. */
static __always_inline bool may_answer(enum limit limit, const struct packet *p)
{
	__u64 ports = *(const __u64 *)&p->t.client_port_be; /* and the protocol */
	bool any = limit == LIMIT_REFUSAL || limit == LIMIT_ECHO;

	return may_tell(limit, &p->t.client, service_hash(&p->t.vip, any ? 0 : ports >> 16));
}

/* too_big reports to the client that a packet is longer than its route allows. The packet may
 * have come from a server, so the report has the client's next hop. Functions here are noinline
 * for the verifier; hence the tests for NULL, which never happens. */
__noinline int too_big(struct xdp_md *ctx, const struct packet *p, const struct service *svc)
{
	const struct next_hop *hop;

	if (!p || !svc)
		return XDP_ABORTED;
	if (is_for_long(p))
		return to_long(ctx, p);
	if (p->kind == KIND_TOO_BIG) /* no error about an error (RFC 4443 §2.4) */
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	if (!may_answer(LIMIT_TOO_BIG, p))
		return verdict(LB_DROP_LIMIT_TOO_BIG, XDP_DROP);
	hop = next_hop_to(&p->t.client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (write_too_big(ctx, p, svc->mtu) || link_to(ctx, hop->mac, p->family))
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	return transmit(LB_TOO_BIG);
}

/* forward sends a client's packet along a route (RFC 2473 §3.1: one hop), signed unless key is
 * NULL. */
__noinline int forward(struct xdp_md *ctx, struct packet *p, const struct service *svc,
		       struct route *r, const struct key *key)
{
	enum rewritten done;

	if (!p || !svc || !r)
		return XDP_ABORTED;
	if (p->length + route_bytes(r->n, r->wire) > self.mtu)
		return too_big(ctx, p, svc);
	done = dec_hop_limit(ctx, p);
	if (!done)
		done = apply_route(ctx, p, r, key);
	return done ? rewrite_failed(done) : transmit(r->reason);
}

/* measure_room computes the room for a list beside a packet, and cuts a segment that lb_long could
 * send, but not along a list. Returns 0, or for a super-packet, which its sender repeats as
 * segments, -1. A function of its own: each way out of it would be a way through the list. */
__noinline int measure_room(struct xdp_md *ctx, struct packet *p, const struct service *svc,
			    struct plan *plan)
{
	if (!p || !svc || !plan)
		return -1;
	plan->room = room_for(p, wire_of(p, svc));
	if (plan->room >= svc->vias + 2U || p->kind != KIND_TCP || !is_for_long(p))
		return 0;
	if (p->length > self.mtu || cut_segment(ctx, p))
		return -1;
	count(LB_CUT);
	plan->room = MAX_LISTED;
	return 0;
}

/* For an action: the packet goes to the servers of this CPU's plan, by send_planned. */
#define TO_LIST (-1)

/* For an action: the packet goes to the server of this CPU's destination, by lb_agentless. */
#define TO_AGENTLESS (-2)

/* send_listed sends a packet to the servers of a plan. */
__noinline int send_listed(struct xdp_md *ctx, struct packet *p, const struct service *svc,
			   struct plan *plan)
{
	struct listing l = { .p = plan, .crowd = crowd_of_cpu() };
	struct scratch *scr = scratch();
	const struct signal_key *k;
	enum listed how;

	if (!p || !svc || !plan || !scr || !l.crowd)
		return XDP_ABORTED;
	l.r = &scr->route;
	l.table = svc->table;
	l.bucket = choose(p, svc);
	plan->members = gather(p, svc);
	if (plan->members < 2) /* no other server: the one that gave the packet back decides */
		plan->except = NO_SERVER;
	if (measure_room(ctx, p, svc, plan))
		return verdict(LB_DROP_SUPER_PACKET, XDP_DROP);
	k = signing_key();
	plan->key_id = k ? k->id : 0;
	how = plan->room ? list_servers(&l, p, svc) : LIST_TOO_BIG;
	if (how == LIST_EMPTY)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	if (how == LIST_NO_HOP)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (how == LIST_LIMITED)
		return verdict(LB_DROP_LIMIT_STRAY - LIMIT_STRAY + plan->limit, XDP_DROP);
	if (how == LIST_TOO_BIG)
		return too_big(ctx, p, svc);
	l.r->reason = plan->reason;
	return forward(ctx, p, svc, l.r, k ? &k->key : NULL);
}

/* send_planned sends this CPU's packet to the servers of this CPU's plan. A function of its own,
 * as lb has no stack left for it. */
__noinline int send_planned(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	const struct service *svc = scr ? service_of(&scr->packet) : NULL;

	if (!svc) /* removed since its plan was made */
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	return send_listed(ctx, &scr->packet, svc, plan_of_cpu());
}

/* argument_of is that of dt to a server's kernel. */
static __always_inline __u16 argument_of(const struct packet *p)
{
	return p->family == 6 ? ARGUMENT_IPV6 : ARGUMENT_IPV4;
}

/* send_routed sends a packet to a server by any route: through transit SIDs, inserted,
 * signed. */
__noinline int send_routed(struct xdp_md *ctx, struct packet *p, const struct service *svc,
			   const struct destination *d)
{
	const struct signal_key *k = NULL;
	struct scratch *scr = scratch();
	struct server *s;
	struct sid sid;

	if (!p || !svc || !d || !scr)
		return XDP_ABORTED;
	s = server_at(d->server);
	if (!s)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	if (delivery_of(s) > DELIVERY_AGENT) {
		scr->destination = *d;
		return TO_AGENTLESS;
	}
	if (!delivery_of(s) || begin_route(&scr->route, p, svc))
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	sid = make_sid(0, d->function, d->generation);
	if (d->function == FN_REJECT || d->function == FN_CONNECT_FORCE) {
		k = signing_key();
		sid.key_id = k ? k->id : 0;
	}
	add_server(&scr->route, s, sid);
	scr->route.reason = d->reason;
	return forward(ctx, p, svc, &scr->route, k ? &k->key : NULL);
}

/* send_to sends a packet to a server. Most packets need an outer header alone, and one helper
 * call, bpf_xdp_adjust_head. */
static __always_inline int send_to(struct xdp_md *ctx, struct packet *p, const struct service *svc,
				   const struct destination *d)
{
	struct server *s = server_at(d->server);
	enum rewritten done;
	struct sid to;

	if (!s || s->ready != DELIVERY_AGENT || svc->wire != WIRE_ENCAP || svc->vias ||
	    p->length + sizeof(struct ipv6hdr) > self.mtu)
		return send_routed(ctx, p, svc, d);
	to = make_sid(s->locator_be, d->function, d->generation);
	done = dec_hop_limit(ctx, p);
	if (!done)
		done = add_outer(ctx, p, 0, UNTAGGED, &to, s->mac, protocol_inside(p));
	return done ? rewrite_failed(done) : transmit(d->reason);
}
