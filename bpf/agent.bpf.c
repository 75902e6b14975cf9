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

#include "conn.h"
#include "count.h"
#include "nexthop.h"
#include "reset.h"
#include "sockets.h"
#include "srv6.h"

/* An SR packet with what it carries. */
struct request {
	struct sr sr;
	struct segment s;
	struct tuple t;
	const struct offering *o;
};

/* What is to be done with a request, and why: every decision is one of these,
 * so that each action stands once. */
enum act {
	ACT_DELIVER,
	ACT_PASS_ON,
	ACT_REFUSE, /* a last candidate with a full accept queue */
	ACT_DROP,
};

struct decision {
	enum act act;
	enum counter why;
};

static __always_inline struct decision decided(enum act act, enum counter why)
{
	return (struct decision){ act, why };
}

/* deliver strips the outer headers and hands the packet to our own stack. */
static __always_inline int deliver(struct xdp_md *ctx, struct request *r, enum counter why)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	__u8 from[ETH_ALEN];
	struct cursor c;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return verdict(AGENT_DROP_TRUNCATED, XDP_DROP);
	if (!ecn_inward(r->s.ip, r->sr.outer))
		return verdict(AGENT_DROP_CONGESTED, XDP_DROP);
	__builtin_memcpy(from, eth->h_source, ETH_ALEN);
	if (bpf_xdp_adjust_head(ctx, r->sr.overhead))
		return verdict(AGENT_DROP_NO_HEADROOM, XDP_DROP);
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	if (!eth)
		return verdict(AGENT_DROP_TRUNCATED, XDP_DROP);
	own_mac(eth->h_dest);
	__builtin_memcpy(eth->h_source, from, ETH_ALEN);
	eth->h_proto = bpf_htons(ETH_P_IPV6);
	return verdict(why, XDP_PASS);
}

/* pass_on moves to the next segment (RFC 8754 §4.3.1.1); the caller has seen
 * that there is one. */
static __always_inline int pass_on(struct request *r, enum counter why)
{
	struct ethhdr *eth = (void *)r->sr.outer - sizeof(*eth);
	const struct next_hop *hop;

	if (r->sr.outer->hop_limit <= 1)
		return verdict(AGENT_DROP_HOP_LIMIT, XDP_DROP);
	hop = next_hop_to(r->sr.next);
	if (!hop)
		return verdict(AGENT_DROP_NO_NEXT_HOP, XDP_DROP);
	r->sr.outer->hop_limit--;
	r->sr.outer->daddr = *r->sr.next;
	r->sr.srh->segments_left--;
	link_header(eth, hop->mac);
	return transmit(why);
}

/* refuse answers for a last candidate whose accept queue is full. */
static __always_inline int refuse(struct xdp_md *ctx, struct request *r)
{
	const struct next_hop *hop;
	__u32 seq;

	if (r->o->on_full == FULL_DROP)
		return verdict(AGENT_REFUSE_FULL_DROP, XDP_DROP);
	hop = next_hop_to(&r->t.client);
	if (!hop)
		return verdict(AGENT_DROP_NO_NEXT_HOP, XDP_DROP);
	seq = bpf_ntohl(r->s.tcp->seq) + 1 + r->s.payload;
	if (!write_reset(ctx, &r->t, seq, r->sr.overhead, hop))
		return verdict(AGENT_DROP_NO_HEADROOM, XDP_DROP);
	return transmit(AGENT_REFUSE_FULL_RESET);
}

/* repeated tells whether an offer is for a connection that is already here:
 * its SYN came again, or a SYN strays into a live connection, which the stack
 * answers with a challenge ACK (RFC 9293 §3.10.7.4) and keeps. */
static __always_inline enum counter repeated(struct xdp_md *ctx, struct request *r)
{
	struct conn *c = conn_find(&r->t);
	struct owner owner;

	if (!c)
		return COUNTERS;
	if (c->generation == generation_of(bpf_ntohl(r->s.tcp->seq))) {
		c->lb_be = r->sr.sender_be;
		return AGENT_ACCEPT_REPEATED;
	}
	find_owner(ctx, &r->t, 0, &owner);
	return owner.established ? AGENT_ACCEPT_CHALLENGED : COUNTERS;
}

/* offered is connectAvail and connectForce. The last segment must be taken. */
static __always_inline struct decision offered(struct xdp_md *ctx, struct request *r, bool force)
{
	bool last = force || !r->sr.next;
	enum counter again = repeated(ctx, r);
	__u64 now = now_ns();
	struct listener here;
	struct load *l;

	if (again != COUNTERS)
		return decided(ACT_DELIVER, again);
	find_listener(ctx, &r->t, &here);
	if (!here.found) /* our stack answers the last one with a RST */
		return last ? decided(ACT_DELIVER, AGENT_REFUSE_NO_LISTENER)
			    : decided(ACT_PASS_ON, AGENT_PASS_ON_NO_LISTENER);
	if (here.full)
		return last ? decided(ACT_REFUSE, AGENT_REFUSE_FULL_RESET)
			    : decided(ACT_PASS_ON, AGENT_PASS_ON_FULL);
	l = load_number(r->o->index);
	if (!last && l) {
		switch (would_take(r->o, l, &here, now)) {
		case TOO_BUSY:
			return decided(ACT_PASS_ON, AGENT_PASS_ON_BUSY);
		case LOAD_UNKNOWN:
			return decided(ACT_PASS_ON, AGENT_PASS_ON_UNKNOWN_LOAD);
		default:
			break;
		}
	}
	if (!conn_accept(&r->t, &r->s, r->o, &r->sr, now))
		return last ? decided(ACT_DELIVER, AGENT_TABLE_FULL)
			    : decided(ACT_PASS_ON, AGENT_PASS_ON_TABLE_FULL);
	return decided(ACT_DELIVER, last ? AGENT_ACCEPT_FORCE : AGENT_ACCEPT_AVAIL);
}

/* aborts tells whether the stack will believe a RST (RFC 9293 §3.10.7.4: its
 * sequence number is the next one expected). XDP is ahead of the stack when both
 * came in one batch, so what this agent has handed on counts too. */
static __always_inline bool aborts(struct xdp_md *ctx, struct request *r, const struct conn *c)
{
	__u32 seq = bpf_ntohl(r->s.tcp->seq);
	struct owner owner;

	if (seq == c->next_in)
		return true;
	find_owner(ctx, &r->t, 0, &owner);
	return owner.established && owner.expects == seq;
}

/* observe keeps what a packet from the client tells about its connection. */
static __always_inline void observe(struct xdp_md *ctx, struct request *r, struct conn *c,
				    __u64 now)
{
	c->seen_ns = now;
	arrived(c);
	asked(c, &r->s);
	if (r->s.tcp->fin)
		set(c, CONN_CLIENT_FIN);
	if (r->s.tcp->rst && aborts(ctx, r, c)) {
		set(c, CONN_CLOSED);
		answered(c);
	}
}

/* steered is ackStickiness: the LB knows that the flow is here. */
static __always_inline enum counter steered(struct xdp_md *ctx, struct request *r)
{
	__u16 generation = bpf_ntohs(r->sr.sid.generation_be);
	struct conn *c = conn_find(&r->t);
	enum counter why = AGENT_STEERED;
	__u64 now = now_ns();
	struct owner owner;

	if (!c) {
		find_owner(ctx, &r->t, bpf_ntohl(r->s.tcp->ack_seq), &owner);
		if (!owner.mine)
			return AGENT_STEERED_UNKNOWN;
		c = conn_adopt(&r->t, &r->s, r->o, &r->sr,
			       owner.generation ? owner.generation : generation, CONN_DIRECT, now);
		why = AGENT_STEERED_ADOPTED;
		if (!c)
			return why;
	}
	if (c->generation != generation)
		return AGENT_STEERED_OTHER_GENERATION;
	if (c->state == CONN_WAIT) {
		c->state = CONN_DIRECT;
		count(AGENT_ACKNOWLEDGED);
	}
	observe(ctx, r, c, now);
	return why;
}

/* recover is recoverStickiness: the LB does not know whose flow this is. */
static __always_inline struct decision recover(struct xdp_md *ctx, struct request *r)
{
	struct conn *c = conn_find(&r->t);
	__u64 now = now_ns();
	struct owner owner;

	find_owner(ctx, &r->t, bpf_ntohl(r->s.tcp->ack_seq), &owner);
	if (!owner.mine)
		return r->sr.next ? decided(ACT_PASS_ON, AGENT_PASS_ON_NOT_MINE)
				  : decided(ACT_DELIVER, AGENT_UNOWNED);
	if (!c)
		c = conn_adopt(&r->t, &r->s, r->o, &r->sr, owner.generation, CONN_WAIT, now);
	if (c) {
		c->lb_be = r->sr.sender_be;
		c->state = CONN_WAIT;
		observe(ctx, r, c, now);
	}
	return decided(ACT_DELIVER, AGENT_RECOVERED);
}

/* answer finds what the function of our SID asks for. */
static __always_inline struct decision answer(struct xdp_md *ctx, struct request *r)
{
	__u16 fn = bpf_ntohs(r->sr.sid.function_be);

	switch (fn) {
	case FN_CONNECT_AVAIL:
	case FN_CONNECT_FORCE:
		if (!opens(r->s.tcp))
			return decided(ACT_DROP, AGENT_DROP_NOT_A_SYN);
		return offered(ctx, r, fn == FN_CONNECT_FORCE);
	case FN_ACK_STICKINESS:
		return decided(ACT_DELIVER, steered(ctx, r));
	case FN_RECOVER_STICKINESS:
		return recover(ctx, r);
	case FN_DELIVER: /* an End.DT6, which ends a route (RFC 8986 §4.6) */
		if (r->sr.next)
			return decided(ACT_DROP, AGENT_DROP_SEGMENTS_LEFT);
		return decided(ACT_DELIVER, AGENT_DELIVER);
	}
	return decided(ACT_DROP, AGENT_DROP_UNKNOWN_FUNCTION);
}

/* open_up completes r from a packet for one of our SIDs, or returns why not. */
static __always_inline enum counter open_up(struct xdp_md *ctx, struct cursor *c,
					    struct ipv6hdr *outer, struct request *r)
{
	switch (take_sr(ctx, c, outer, &r->sr)) {
	case MALFORMED_SRH:
		return AGENT_DROP_MALFORMED_SRH;
	case NOT_IPV6_INSIDE:
		return AGENT_DROP_NOT_IPV6_INSIDE;
	default:
		break;
	}
	r->s.ip = take_inner(c, &r->sr);
	if (!r->s.ip)
		return AGENT_DROP_TRUNCATED;
	if (r->s.ip->nexthdr != IPPROTO_TCP)
		return AGENT_DROP_NOT_OUR_SERVICE;
	if (!take_tcp(c, &r->s))
		return AGENT_DROP_MALFORMED_TCP;
	r->o = offering_at(&r->s.ip->daddr, r->s.tcp->dest);
	if (!r->o)
		return AGENT_DROP_NOT_OUR_SERVICE;
	r->t = tuple_inward(&r->s);
	return COUNTERS;
}

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

/* wrap puts the answer into [lb::fn] (RFC 8986 §5.2, one segment: no SRH), or
 * returns false: it must go without (a super-packet or one near the MTU). */
static __always_inline bool wrap(struct __sk_buff *skb, const struct tuple *t, const struct conn *c,
				 enum function fn, __u8 class)
{
	struct sid sid = make_sid(c->lb_be, fn, c->generation);
	struct in6_addr lb = sid_address(&sid);
	__u32 length = skb->len - sizeof(struct ethhdr);
	const struct next_hop *hop;
	struct ipv6hdr outer = {};

	if (skb->gso_segs > 1 || length + sizeof(outer) > self.mtu)
		return false;
	hop = next_hop_to(&lb);
	if (!hop || bpf_skb_adjust_room(skb, sizeof(outer), BPF_ADJ_ROOM_MAC,
					BPF_F_ADJ_ROOM_ENCAP_L3_IPV6))
		return false;
	outer_header(&outer, &lb, class, flow_label(t), length, IPPROTO_IPV6);
	bpf_skb_store_bytes(skb, 0, hop->mac, ETH_ALEN, 0);
	bpf_skb_store_bytes(skb, sizeof(struct ethhdr), &outer, sizeof(outer), 0);
	return true;
}

/* signal decides what an outward packet must tell the LB. */
static __always_inline enum function signal(struct conn *c, const struct segment *s)
{
	if (s->tcp->rst)
		set(c, CONN_CLOSED);
	if (s->tcp->fin)
		set(c, CONN_SERVER_FIN);
	if (s->payload || s->tcp->fin || s->tcp->rst)
		answered(c);
	if (s->tcp->fin || s->tcp->rst)
		set(c, CONN_OWES);
	if (c->state == CONN_WAIT)
		return FN_CREATE_STICKINESS;
	return c->flags & CONN_OWES ? FN_REMOVE_STICKINESS : FN_NONE;
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
