// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* agent.bpf.c: the server's side.
 *
 *   in   XDP, packets for our SIDs:
 *        ca, cf  offer             -> deliver (WAIT) | pass on to the next segment
 *        as      the LB has a flow -> deliver (DIRECT) | give back to the LB in nm
 *        rs      the LB has none   -> deliver (WAIT) | pass on
 *        rj      rejected SYN-ACK  -> deliver the RST that ends the request socket
 *        dt      decapsulate       -> deliver
 *   out  tc, the service's packets to its clients:
 *        WAIT    in [lb::cs]; closing: in [lb::rms]; else straight to the client;
 *        TC_ACT_UNSPEC lets the filters that follow decide */
#include "core/count.h"
#include <linux/pkt_cls.h>
#include <stddef.h>

enum counter {
	AGENT_PASS_NOT_IPV6,
	AGENT_PASS_NOT_SID,
	AGENT_PASS_OWN_ADDRESS,
	AGENT_ACCEPT_AVAIL,
	AGENT_ACCEPT_FORCE,
	AGENT_ACCEPT_REPEATED,
	AGENT_ACCEPT_CHALLENGED,
	AGENT_PASS_ON_BUSY,
	AGENT_PASS_ON_UNKNOWN_LOAD,
	AGENT_PASS_ON_FULL,
	AGENT_PASS_ON_NO_LISTENER,
	AGENT_PASS_ON_TABLE_FULL,
	AGENT_PASS_ON_AGAIN,
	AGENT_PASS_ON_NOT_MINE,
	AGENT_REFUSE_FULL_RESET,
	AGENT_REFUSE_FULL_DROP,
	AGENT_REFUSE_NO_LISTENER,
	AGENT_GIVE_BACK_NO_LISTENER,
	AGENT_GIVE_BACK_NOT_MINE,
	AGENT_DELIVER,
	AGENT_STEERED,
	AGENT_STEERED_ADOPTED,
	AGENT_STEERED_EMBRYONIC,
	AGENT_STEERED_OTHER_GENERATION,
	AGENT_ESTABLISHED,
	AGENT_ACKNOWLEDGED,
	AGENT_RECOVERED,
	AGENT_UNOWNED,
	AGENT_REJECTED,
	AGENT_TABLE_FULL,
	AGENT_OUT_NOT_OURS,
	AGENT_OUT_NO_FLOW,
	AGENT_OUT_DIRECT,
	AGENT_SIGNAL_CREATE,
	AGENT_SIGNAL_REMOVE,
	AGENT_SIGNAL_DEFERRED,
	AGENT_DROP_OUTSIDE,
	AGENT_DROP_BAD_TAG,
	AGENT_DROP_UNKNOWN_FUNCTION,
	AGENT_DROP_NOT_OUR_SERVICE,
	AGENT_DROP_TRUNCATED,
	AGENT_DROP_MALFORMED_TRANSPORT,
	AGENT_DROP_MALFORMED_SRH,
	AGENT_DROP_NOTHING_INSIDE,
	AGENT_DROP_SEGMENTS_LEFT,
	AGENT_DROP_NOT_A_SYN,
	AGENT_DROP_UNOWNED,
	AGENT_DROP_REJECT_STALE,
	AGENT_DROP_HOP_LIMIT,
	AGENT_DROP_CONGESTED,
	AGENT_DROP_NO_NEXT_HOP,
	AGENT_DROP_NO_HEADROOM,
	COUNTERS,
};

_Static_assert(COUNTERS <= MAX_COUNTERS, "more counters than a record has room for");

/* Keeps the enum, and with it the names, in the object's BTF. */
const volatile enum counter counters_end = COUNTERS;

#include "agent/act.h"
#include "agent/decide.h"
#include "agent/sockets.h"
#include "agent/wrap.h"

/* not_for_us returns why the kernel gets the frame untouched, or COUNTERS. */
static __always_inline enum counter not_for_us(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip = take(&c, sizeof(*ip));

	if (!eth || !ip || eth->h_proto != bpf_htons(ETH_P_IPV6) || ip->version != 6)
		return AGENT_PASS_NOT_IPV6;
	if (!is_own(&ip->daddr))
		return AGENT_PASS_NOT_SID;
	return ((const struct sid *)&ip->daddr)->function_be ? COUNTERS : AGENT_PASS_OWN_ADDRESS;
}

SEC("xdp")
int agent_in(struct xdp_md *ctx)
{
	enum counter why = not_for_us(ctx);
	struct scratch *scr = scratch();
	struct decision d = {};
	struct request r = {};

	if (why != COUNTERS)
		return verdict(why, XDP_PASS);
	if (!scr)
		return XDP_ABORTED;
	r.sr = &scr->sr;
	r.p = &scr->packet;
	why = read_request(ctx, &r);
	if (why != COUNTERS)
		return verdict(why, XDP_DROP);

	decide(ctx, r.sr, r.p, r.o, &d);
	switch (d.act) {
	case ACT_DELIVER:
		return deliver(ctx, &r, d.why);
	case ACT_PASS_ON:
	case ACT_PASS_ON_OFFER:
		return pass_on(ctx, &r, d.why);
	case ACT_REFUSE:
		return refuse(ctx, r.sr, r.p, r.o);
	case ACT_GIVE_BACK:
		return give_back(ctx, &r, d.why);
	default:
		return verdict(d.why, XDP_DROP);
	}
}

/* read_outward parses a packet of a service on its way out. The linear part of a
 * super-packet is enough: it holds the headers. */
static __always_inline bool read_outward(struct __sk_buff *skb, struct packet *p)
{
	struct cursor c = frame_at(skb, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	enum reading how;

	if (!eth || (eth->h_proto != bpf_htons(ETH_P_IPV6) && eth->h_proto != bpf_htons(ETH_P_IP)))
		return false;
	how = read_at(eth, c.end, ETH_BYTES, p, OUTWARD);
	return (how == READ || how == TRUNCATED) && p->kind != KIND_TOO_BIG && offering_of(p);
}

SEC("tc")
int agent_out(struct __sk_buff *skb)
{
	enum function fn;
	struct packet p;
	struct conn_entry e;
	__u64 now;

	if (!read_outward(skb, &p))
		return verdict(AGENT_OUT_NOT_OURS, TC_ACT_UNSPEC);
	now = now_ns();
	e = conn_find(&p, now);
	if (!e.c)
		return verdict(AGENT_OUT_NO_FLOW, TC_ACT_UNSPEC);

	e.c->seen_ns = now;
	fn = signal_to_send(&e, &p);
	if (fn == FN_NONE)
		return verdict(AGENT_OUT_DIRECT, TC_ACT_UNSPEC);
	if (!wrap(skb, &p, e.c, fn))
		return verdict(AGENT_SIGNAL_DEFERRED, TC_ACT_UNSPEC);
	if (fn == FN_CREATE_STICKINESS)
		return verdict(AGENT_SIGNAL_CREATE, TC_ACT_UNSPEC);
	clear_flag(e.c, CONN_OWES);
	return verdict(AGENT_SIGNAL_REMOVE, TC_ACT_UNSPEC);
}

/* sweep_conns removes expired entries; the daemon runs it over some lines at a time. Its
 * frame is struct sweep, never a packet. An XDP program, since a syscall program may sleep,
 * and then Linux 6.1 lets it use no map with a lock. */
SEC("xdp")
int sweep_conns(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct sweep *data = take(&c, sizeof(*data)), s;

	if (!data)
		return XDP_ABORTED;
	s = *data;
	bpf_loop(s.count, sweep_line, &s, 0);
	c = frame_at(ctx, 0);
	data = take(&c, sizeof(*data));
	if (!data)
		return XDP_ABORTED;
	*data = s;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
