// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* agent.bpf.c: the server's side.
 *
 *   in   XDP, packets for our SIDs:
 *        ca, cf  offer             -> deliver (WAIT) | pass on to the next segment
 *        as      the LB has a flow -> deliver (DIRECT) | give back to the LB in nm
 *        rs      the LB has none   -> deliver (WAIT) | pass on
 *        rj      rejected SYN-ACK  -> deliver the RST that ends the request socket
 *        dt      decapsulate       -> deliver
 *        refuse, give back: tail call of agent_return
 *   out  tc, the service's packets to its clients:
 *        WAIT    in [lb::cs]; closing: in [lb::rms]; else straight to the client;
 *        TC_ACT_UNSPEC lets the filters that follow decide */
#include "agent/act.h"
#include "agent/adopt.h"
#include "agent/decide.h"
#include "agent/give_back.h"
#include "agent/restore.h"
#include "agent/signal.h"
#include "agent/steady.h"
#include "agent/sweep.h"
#include "agent/wrap_signal.h"

/* act_on reads a packet for a SID of ours, decides on it, and acts. A function of its own, so
 * that steady packets make no call. */
__noinline int act_on(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	struct decision d = {};
	enum counter why;
	struct request r;

	if (!scr)
		return XDP_ABORTED;
	r = (struct request){ .sr = &scr->sr, .p = &scr->packet };
	why = read_request(ctx, &r);
	if (why != COUNTERS)
		return verdict(why, XDP_DROP);
	decide(ctx, r.o, &d);
	if (restoring_until_ns)
		await_restored(r.o, &d);
	if (r.sr->sid.flags & SID_HELD)
		answer_held(r.sr, &d);
	switch (d.act) {
	case ACT_DELIVER:
		return deliver(ctx, &r, d.why);
	case ACT_PASS_ON:
	case ACT_PASS_ON_OFFER:
		return pass_on(ctx, &r, d.why);
	case ACT_REFUSE:
	case ACT_GIVE_BACK:
		return to_return(ctx, scr, d.why);
	default:
		return verdict(d.why, XDP_DROP);
	}
}

SEC("xdp.frags")
int agent_in(struct xdp_md *ctx)
{
	enum counter why = not_for_us(ctx);
	struct scratch *scr = scratch();

	if (why != COUNTERS)
		return counted(why, XDP_PASS);
	if (!scr)
		return XDP_ABORTED;
	if (is_steered(ctx) && deliver_steady(ctx, &scr->packet))
		return counted(AGENT_STEERED, XDP_PASS);
	return act_on(ctx);
}

SEC("tc")
int agent_out(struct __sk_buff *skb)
{
	const struct offering *o;
	enum function fn;
	struct packet p;
	struct conn_entry e;
	__u64 now;

	if (!read_outward(skb, &p))
		return counted(AGENT_OUT_NOT_OURS, TC_ACT_UNSPEC);
	now = now_ns();
	e = conn_find(&p, now, false);
	if (!e.c)
		return verdict(offering_of(&p) ? AGENT_OUT_NO_FLOW : AGENT_OUT_NOT_OURS,
			       TC_ACT_UNSPEC);

	e.c->seen = now >> SEEN_SHIFT;
	fn = signal_to_send(&e, &p);
	if (fn == FN_NONE)
		return counted(AGENT_OUT_DIRECT, TC_ACT_UNSPEC);
	o = offered_at(e.c->offering);
	if (!o || !wrap(skb, &p, e.c, o->wire, fn))
		return verdict(AGENT_SIGNAL_DEFERRED, TC_ACT_UNSPEC);
	if (fn == FN_CREATE_STICKINESS)
		return verdict(AGENT_SIGNAL_CREATE, TC_ACT_UNSPEC);
	clear_flag(e.c, CONN_REMOVAL_DUE);
	return verdict(AGENT_SIGNAL_REMOVE, TC_ACT_UNSPEC);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
