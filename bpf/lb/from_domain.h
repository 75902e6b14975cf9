/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* from_domain.h: a packet for a SID of ours, until its sender and its tag are known: then it is an
 * answer of a server (from_server.h), or goes on to other servers. */
#pragma once
#include "lb/from_server.h"
#include "lb/unserved.h"

/* signal_function reads the function again, so that the verifier joins the ways of all functions. */
static __always_inline __u16 signal_function(const struct sr *sr)
{
	return bpf_ntohs(*(const volatile __be16 *)&sr->sid.function_be);
}

/* sender_flaw finds the sender of a signal, scr->sender: a configured server, or for rs this
 * LB (NO_SERVER). Returns the reason to drop the packet, or COUNTERS. */
static __always_inline enum counter sender_flaw(struct scratch *scr)
{
	const struct sr *sr = &scr->sr;
	__u16 fn = signal_function(sr);

	scr->sender = NO_SERVER;
	if (sr->left > scr->packet.inserted) /* an inserted list ends in the packet's destination */
		return LB_DROP_SEGMENTS_LEFT;
	if (fn == FN_RECOVER_STICKINESS)
		return sr->sender_be == self.locator_be ? COUNTERS : LB_DROP_UNKNOWN_SENDER;
	scr->sender = number_of(sr->sender_be);
	return scr->sender == NO_SERVER ? LB_DROP_UNKNOWN_SENDER : COUNTERS;
}

/* from_server handles a signal about a flow of a service. */
static __always_inline int from_server(struct xdp_md *ctx, struct scratch *scr,
				       const struct service *svc)
{
	struct packet *p = &scr->packet;
	struct sr *sr = &scr->sr;

	p->hash = digest(&p->t);
	if (signing_key() && !signed_by(ctx, sr, p, scr->sender))
		return verdict(LB_DROP_BAD_TAG, XDP_DROP);
	scr->word = flow_find(p->hash, false);
	if (!scr->word)
		fetch_hints(p->hash);
	if (!may_signal(p, svc, scr->sender, scr->word))
		return verdict(LB_DROP_NOT_CANDIDATE, XDP_DROP);
	switch (signal_function(sr)) {
	case FN_CREATE_STICKINESS:
	case FN_REMOVE_STICKINESS:
		return forward_answer(ctx, scr, svc);
	default:
		return TO_RETURNED;
	}
}

/* from_domain handles a packet for a SID of ours. */
__noinline int from_domain(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip));
	struct scratch *scr = scratch();
	const struct service *svc;
	enum counter reason;
	bool answer;
	__u16 fn;
	int how;

	if (!scr || !ip)
		return XDP_ABORTED;
	fn = bpf_ntohs(((const struct sid *)&ip->daddr)->function_be);
	if (!fn)
		return verdict(LB_PASS_OWN_ADDRESS, XDP_PASS);
	answer = fn == FN_CREATE_STICKINESS || fn == FN_REMOVE_STICKINESS;
	if (!answer && fn != FN_NOT_MINE && fn != FN_RECOVER_STICKINESS)
		return verdict(LB_DROP_UNKNOWN_FUNCTION, XDP_DROP);
	how = open_sr(ctx, &scr->sr, &scr->packet, answer ? OUTWARD : INWARD);
	if (how != OPENED)
		return malformed_sr(how);
	reason = sender_flaw(scr);
	if (reason != COUNTERS)
		return verdict(reason, XDP_DROP);
	svc = has_ports(&scr->packet) ? service_of(&scr->packet) : NULL;
	if (!svc || !(is_signalled(svc) || is_check(&scr->sr)) ||
	    (answer && scr->packet.kind == KIND_TOO_BIG))
		return verdict(LB_DROP_NOT_FROM_VIP, XDP_DROP);
	if (scr->packet.inserted !=
	    (wire_of(&scr->packet, svc) == WIRE_INSERT && fn != FN_NOT_MINE))
		return verdict(LB_DROP_WRONG_WIRE, XDP_DROP);
	return from_server(ctx, scr, svc);
}
