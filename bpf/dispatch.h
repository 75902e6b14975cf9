/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* dispatch.h: which servers a client's packet goes to: the one that has its flow,
 * the candidates of a new one, or the one by hash. */
#pragma once
#include "flow.h"
#include "send.h"

/* steer sends a packet to the server that has its flow. */
static __always_inline int steer(struct xdp_md *ctx, const struct segment *s, const struct tuple *t,
				 struct flow *f)
{
	struct route r = { .n = 1 };

	flow_touch(f, now_ns());
	if (f->state == FLOW_EMBRYONIC && s->tcp->ack) {
		f->state = FLOW_STEER;
		count(LB_FLOW_ACKNOWLEDGED);
	}
	if (s->tcp->fin)
		flow_close(f, CLOSED_CLIENT);
	r.first = server_number(f->server);
	if (!r.first)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	r.segment[0] = make_sid(r.first->locator_be, FN_ACK_STICKINESS, f->generation);
	return send_out(ctx, s->ip, t, &r, LB_STEER);
}

/* to_front moves the flow's owner, if it is in the list, to the first place. */
static __always_inline void to_front(__u32 *numbers, __u32 n, __u32 owner)
{
	for (__u32 i = 1; i < MAX_CHOICES; i++) {
		if (i < n && numbers[i] == owner) {
			numbers[i] = numbers[0];
			numbers[0] = owner;
		}
	}
}

/* hunt sends a packet by all candidates of its flow: an offer (connectAvail …,
 * connectForce), or the question whose flow it is (recoverStickiness). */
static __always_inline int hunt(struct xdp_md *ctx, const struct segment *s, const struct tuple *t,
				const struct service *svc, const struct flow *known)
{
	bool offer = opens(s->tcp);
	__u16 generation = offer ? generation_of(bpf_ntohl(s->tcp->seq)) : 0;
	enum function fn = offer ? FN_CONNECT_AVAIL : FN_RECOVER_STICKINESS;
	__u32 numbers[MAX_CHOICES] = {};
	const struct server *server;
	struct candidates list = {};
	struct route r = {};

	choose(candidate_hash(t), svc->servers, svc->choices, &list);
	for (__u32 i = 0; i < MAX_CHOICES; i++)
		if (i < list.n && !member(svc, list.at[i], &numbers[i]))
			return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	if (known)
		to_front(numbers, list.n, known->server);
	for (__u32 i = 0; i < MAX_CHOICES; i++) {
		if (i >= list.n)
			break;
		server = server_number(numbers[i]);
		if (!server)
			return verdict(LB_DROP_NO_SERVER, XDP_DROP);
		if (!i)
			r.first = server;
		if (offer && i == list.n - 1)
			fn = FN_CONNECT_FORCE;
		r.segment[i] = make_sid(server->locator_be, fn, generation);
	}
	r.n = list.n;
	if (!r.first)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	return send_out(ctx, s->ip, t, &r,
			offer ? known ? LB_OFFER_AGAIN : LB_OFFER : LB_RECOVER);
}

/* single sends every packet of a flow to one server, by hash: no state here
 * and no agent there (the SID is one End.DT6 a server). */
static __always_inline int single(struct xdp_md *ctx, const struct segment *s, const struct tuple *t,
				  const struct service *svc)
{
	struct route r = { .n = 1 };
	struct candidates list = {};
	__u32 number;

	choose(candidate_hash(t), svc->servers, 1, &list);
	r.first = list.n ? member(svc, list.at[0], &number) : NULL;
	if (!r.first)
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	r.segment[0] = make_sid(r.first->locator_be, FN_DELIVER, 0);
	return send_out(ctx, s->ip, t, &r, LB_DELIVER);
}
