/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* dispatch.h: which servers a client's packet goes to: the one that has its flow,
 * those that may have it, the candidates of a new one, or the one by hash. */
#pragma once
#include "flow.h"
#include "retry.h"
#include "send.h"

/* recover asks whose flow this is. What comes again has found nobody: the order
 * turns, as a host on the way may be down. Of a flow of datagrams that is thought
 * from the fourth on, and then every second one is offered to whoever is first
 * without asking the others. */
static __always_inline int recover(struct xdp_md *ctx, struct packet *p, const struct service *svc)
{
	struct plan plan = {
		.first = NOBODY, .except = NOBODY, .laps = LAP_QUESTION, .why = LB_RECOVER,
	};

	if (p->kind != KIND_TOO_BIG)
		plan.rotate = seen_before(p);
	if (p->kind == KIND_UDP) {
		plan.laps = LAP_QUESTION | LAP_OFFER;
		plan.why = LB_OFFER_DATAGRAM;
		if (plan.rotate > 2 && plan.rotate % 2)
			plan.laps = LAP_OFFER;
		plan.rotate = plan.rotate > 2 ? plan.rotate / 2 : 0;
	}
	return send_listed(ctx, p, svc, &plan);
}

/* offer proffers a new connection to its candidates. One that came before is
 * marked: whoever holds or refused it does so again. If that stays unanswered,
 * too, others come first, and every second time the first must take it, as one
 * that comes later may be down. */
static __always_inline int offer(struct xdp_md *ctx, struct packet *p, const struct service *svc)
{
	struct plan plan = {
		.first = NOBODY, .except = NOBODY, .laps = LAP_OFFER, .why = LB_OFFER,
		.generation = generation_of(p->seq),
	};
	struct flow *f = flow_find(&p->t);
	struct embryo *e;
	__u32 times;

	times = seen_before(p);
	if (times) {
		plan.flags = SID_RETRY;
		plan.rotate = times / 2;
		plan.forced = times > 1 && times % 2;
		plan.why = LB_OFFER_RETRY;
	}
	if (f)
		f->announced = plan.generation;
	e = f ? NULL : embryo_find(&p->t);
	if ((f || e) && times < 2) { /* else it does not answer */
		plan.first = f ? f->server : e->server;
		plan.why = LB_OFFER_AGAIN;
	}
	return send_listed(ctx, p, svc, &plan);
}

/* steer sends a packet to the server that has its flow. */
static __always_inline int steer(struct xdp_md *ctx, struct packet *p, const struct service *svc,
				 __u32 number, __u16 generation)
{
	struct order o = {
		.server = number, .function = FN_ACK_STICKINESS, .generation = generation,
		.why = LB_STEER,
	};

	if (!server_number(number)) { /* it left the pool */
		bpf_map_delete_elem(&flows, &p->t);
		bpf_map_delete_elem(&embryos, &p->t);
		count(LB_STALE_REMOVED);
		return recover(ctx, p, svc);
	}
	return send_to(ctx, p, svc, &o);
}

/* grown tells whether the client acknowledged what the server said: only then
 * does a flow live among the established ones. */
static __always_inline bool grown(const struct packet *p, const struct embryo *e)
{
	return p->kind == KIND_UDP ||
	       (p->kind == KIND_TCP && p->flags & TCP_ACK && p->ack == e->expects);
}

/* hatch steers a packet of an embryo. One that acknowledges something else is of
 * a connection with another server, which the embryo's would reset. */
static __always_inline int hatch(struct xdp_md *ctx, struct packet *p, const struct service *svc,
				 struct embryo *e)
{
	__u16 generation = e->generation;
	__u32 server = e->server;

	if (grown(p, e)) {
		if (flow_write(&p->t, server, generation)) {
			bpf_map_delete_elem(&embryos, &p->t);
			count(LB_FLOW_ACKNOWLEDGED);
		} else {
			count(LB_TABLE_FULL);
		}
	} else if (p->kind == KIND_TCP && p->flags & TCP_ACK) {
		return recover(ctx, p, svc);
	}
	return steer(ctx, p, svc, server, generation);
}

/* hunt finds the server of a packet of a service with flows. */
static __always_inline int hunt(struct xdp_md *ctx, struct packet *p, const struct service *svc)
{
	struct embryo *e;
	struct flow *f;

	if (opens(p))
		return offer(ctx, p, svc);
	f = flow_find(&p->t);
	if (f) {
		if (p->kind != KIND_TOO_BIG)
			flow_touch(f, now_ns());
		if (p->kind == KIND_TCP && p->flags & TCP_FIN)
			flow_close(f, CLOSED_CLIENT);
		return steer(ctx, p, svc, f->server, f->generation);
	}
	e = embryo_find(&p->t);
	if (e)
		return hatch(ctx, p, svc, e);
	return recover(ctx, p, svc);
}

/* single sends every packet of a flow to one server, by hash: no state here
 * and no agent there (the SID is one End.DT6 a server). */
static __always_inline int single(struct xdp_md *ctx, struct packet *p, const struct service *svc)
{
	const struct bucket *b = bucket_of(svc, &p->t);
	struct order o = { .server = NOBODY, .function = FN_DELIVER, .why = LB_DELIVER };

	if (b && b->choices)
		o.server = b->server[0];
	return send_to(ctx, p, svc, &o);
}
