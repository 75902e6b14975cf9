// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* agent.bpf.c: the server's side.
 *
 *   in   XDP, packets for our SIDs:
 *        ca, cf  would I take it? -> deliver (WAIT) | pass on to the next segment
 *        as      the LB knows     -> deliver (DIRECT)
 *        rs      is it mine?      -> deliver (WAIT) | pass on
 *        dt      no question      -> deliver
 *   out  tc, the service's answers:
 *        WAIT    in [lb::cs]; closing: in [lb::rms]; else straight to the client;
 *        TC_ACT_UNSPEC leaves the last word to whatever filters follow */
#include "types.h"
#include <linux/pkt_cls.h>

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
	AGENT_PASS_ON_NOT_MINE,
	AGENT_REFUSE_FULL_RESET,
	AGENT_REFUSE_FULL_DROP,
	AGENT_REFUSE_NO_LISTENER,
	AGENT_DELIVER,
	AGENT_STEERED,
	AGENT_STEERED_ADOPTED,
	AGENT_STEERED_UNKNOWN,
	AGENT_STEERED_OTHER_GENERATION,
	AGENT_ACKNOWLEDGED,
	AGENT_RECOVERED,
	AGENT_UNOWNED,
	AGENT_TABLE_FULL,
	AGENT_OUT_NOT_OURS,
	AGENT_OUT_NO_FLOW,
	AGENT_OUT_DIRECT,
	AGENT_SIGNAL_CREATE,
	AGENT_SIGNAL_REMOVE,
	AGENT_SIGNAL_DEFERRED,
	AGENT_DROP_UNKNOWN_FUNCTION,
	AGENT_DROP_NOT_OUR_SERVICE,
	AGENT_DROP_TRUNCATED,
	AGENT_DROP_MALFORMED_TCP,
	AGENT_DROP_MALFORMED_SRH,
	AGENT_DROP_NOT_IPV6_INSIDE,
	AGENT_DROP_SEGMENTS_LEFT,
	AGENT_DROP_NOT_A_SYN,
	AGENT_DROP_HOP_LIMIT,
	AGENT_DROP_CONGESTED,
	AGENT_DROP_NO_NEXT_HOP,
	AGENT_DROP_NO_HEADROOM,
	COUNTERS,
};

#include "act.h"
#include "answer.h"
#include "sockets.h"
#include "wrap.h"

SEC("xdp")
int agent_in(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct request r = {};
	struct ipv6hdr *outer;
	struct decision d;
	enum counter bad;

	if (!take_ethernet(&c))
		return verdict(AGENT_PASS_NOT_IPV6, XDP_PASS);
	outer = take(&c, sizeof(*outer));
	if (!outer || outer->version != 6)
		return verdict(AGENT_PASS_NOT_IPV6, XDP_PASS);
	if (!is_own(&outer->daddr))
		return verdict(AGENT_PASS_NOT_SID, XDP_PASS);
	if (!((const struct sid *)&outer->daddr)->function_be)
		return verdict(AGENT_PASS_OWN_ADDRESS, XDP_PASS);
	if (c.pos + bpf_ntohs(outer->payload_len) > c.end)
		return verdict(AGENT_DROP_TRUNCATED, XDP_DROP);
	bad = open_up(ctx, &c, outer, &r);
	if (bad != COUNTERS)
		return verdict(bad, XDP_DROP);

	d = answer(ctx, &r);
	switch (d.act) {
	case ACT_DELIVER:
		return deliver(ctx, &r, d.why);
	case ACT_PASS_ON:
		return pass_on(&r, d.why);
	case ACT_REFUSE:
		return refuse(ctx, &r);
	default:
		return verdict(d.why, XDP_DROP);
	}
}

SEC("tc")
int agent_out(struct __sk_buff *skb)
{
	struct cursor c = { (void *)(long)skb->data, (void *)(long)skb->data_end };
	struct segment s = {};
	struct conn *conn;
	enum function fn;
	struct tuple t;

	if (!take_ethernet(&c))
		return verdict(AGENT_OUT_NOT_OURS, TC_ACT_UNSPEC);
	s.ip = take(&c, sizeof(*s.ip));
	if (!s.ip || s.ip->nexthdr != IPPROTO_TCP)
		return verdict(AGENT_OUT_NOT_OURS, TC_ACT_UNSPEC);
	s.tcp = take(&c, sizeof(*s.tcp));
	if (!s.tcp || !offering_at(&s.ip->saddr, s.tcp->source))
		return verdict(AGENT_OUT_NOT_OURS, TC_ACT_UNSPEC);
	s.payload = skb->len - sizeof(struct ethhdr) - sizeof(*s.ip) - s.tcp->doff * 4;
	t = tuple_outward(&s);
	conn = conn_find(&t);
	if (!conn)
		return verdict(AGENT_OUT_NO_FLOW, TC_ACT_UNSPEC);

	conn->seen_ns = now_ns();
	fn = signal(conn, &s);
	if (fn == FN_NONE)
		return verdict(AGENT_OUT_DIRECT, TC_ACT_UNSPEC);
	if (!wrap(skb, &t, conn, fn, traffic_class(s.ip)))
		return verdict(AGENT_SIGNAL_DEFERRED, TC_ACT_UNSPEC);
	if (fn == FN_CREATE_STICKINESS)
		return verdict(AGENT_SIGNAL_CREATE, TC_ACT_UNSPEC);
	unset(conn, CONN_OWES);
	return verdict(AGENT_SIGNAL_REMOVE, TC_ACT_UNSPEC);
}

/* sweep removes the entries whose time has run out; the daemon runs it. */
SEC("syscall")
int sweep_conns(struct sweep *ctx)
{
	struct sweep s = *ctx;

	bpf_for_each_map_elem(&conns, sweep_conn, &s, 0);
	ctx->kept = s.kept;
	ctx->removed = s.removed;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
