// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* lb.bpf.c: the load balancer, XDP on its link.
 *
 *   client's packet for a VIP    parse -> steady? flow -> steer
 *                                      -> service -> flow -> steer | offer | recover | begin
 *   packet for a SID of ours     tail call of lb_signal:
 *                                parse -> sender -> service -> tag
 *                                  cs, rms: apply the signal -> to the client
 *                                  nm, rs:  tail call of lb_returned -> to other servers
 *   question, offer to a list    tail call of lb_list
 *   new flow that the client's   tail call of lb_kept
 *     packets make known
 *   to a server without agent    tail call of lb_agentless
 *   flow perhaps in the table    tail call of lb_before, and then of lb
 *     of an earlier daemon
 *   packet too big about our     -> packet too big about the client's packet, to the client
 *     outer packet
 *   odd packet for a VIP         tail call of lb_odd:
 *     port that no service has   -> refused, to the client
 *     hop limit that ends here   -> time exceeded, to the client
 *     options                    -> tail call of lb_behind: as any other packet
 *   longer than a frame carries  left to the stack: lb_long, tc's way in, sends it as several
 *   every other packet           to the kernel, untouched */
#include "lb/agentless.h"
#include "lb/allow.h"
#include "lb/earlier_table.h"
#include "lb/icmp.h"
#include "lb/long_packets.h"
#include "lb/from_domain.h"
#include "lb/steady.h"
#include "lb/sweep.h"

int lb_signal(struct xdp_md *ctx);
int lb_odd(struct xdp_md *ctx);
int lb_list(struct xdp_md *ctx);
int lb_kept(struct xdp_md *ctx);
int lb_returned(struct xdp_md *ctx);
int lb_agentless(struct xdp_md *ctx);
int lb_behind(struct xdp_md *ctx);
int lb_before(struct xdp_md *ctx);
int lb(struct xdp_md *ctx);

/* The programs that a packet may go on to, by a tail call: the verifier looks at each apart, and
 * client packets keep the whole stack. The kernel empties an array of programs that no process
 * and no pin holds, so it is pinned while lb is attached. */
enum {
	SIGNAL_PROGRAM,
	ODD_PROGRAM,
	LIST_PROGRAM,
	KEPT_PROGRAM,
	RETURNED_PROGRAM,
	AGENTLESS_PROGRAM,
	BEHIND_PROGRAM,
	BEFORE_PROGRAM,
	LB_PROGRAM,
	PROGRAMS
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__array(values, int(void *));
} programs SEC(".maps") = { .values = { [SIGNAL_PROGRAM] = (void *)&lb_signal,
					[ODD_PROGRAM] = (void *)&lb_odd,
					[LIST_PROGRAM] = (void *)&lb_list,
					[KEPT_PROGRAM] = (void *)&lb_kept,
					[RETURNED_PROGRAM] = (void *)&lb_returned,
					[AGENTLESS_PROGRAM] = (void *)&lb_agentless,
					[BEHIND_PROGRAM] = (void *)&lb_behind,
					[BEFORE_PROGRAM] = (void *)&lb_before,
					[LB_PROGRAM] = (void *)&lb } };

/* Set by the bench, which calls lb more often than a run may make tail calls (33). A list is then
 * lb's own, and the bench calls lb_signal and lb_kept: together their stacks are too large. */
const volatile bool without_tail_calls = false;

/* lb_list sends packets to the servers of a plan: questions, and offers that are not plain. */
SEC("xdp.frags")
int lb_list(struct xdp_md *ctx)
{
	return send_planned(ctx);
}

/* with_kept returns an action, after TO_KEPT that of lb_kept. */
static __always_inline int with_kept(struct xdp_md *ctx, int action)
{
	if (action != TO_KEPT)
		return action;
	if (without_tail_calls)
		return BENCH_KEPT;
	bpf_tail_call(ctx, &programs, KEPT_PROGRAM);
	return XDP_ABORTED;
}

/* lb_agentless sends packets to servers without an agent, but those of known flows that need an
 * outer header alone. */
SEC("xdp.frags")
int lb_agentless(struct xdp_md *ctx)
{
	return send_agentless(ctx);
}

/* with_agentless returns an action, after TO_AGENTLESS that of lb_agentless. */
static __always_inline int with_agentless(struct xdp_md *ctx, int action)
{
	if (action != TO_AGENTLESS)
		return action;
	bpf_tail_call(ctx, &programs, AGENTLESS_PROGRAM);
	return XDP_ABORTED; /* the array is empty: user space let go of it */
}

/* lb_kept begins flows whose entries the clients' packets make. */
SEC("xdp.frags")
int lb_kept(struct xdp_md *ctx)
{
	return with_agentless(ctx, begin_kept(ctx));
}

/* with_list returns an action, after TO_LIST that of lb_list, and after TO_AGENTLESS that of
 * lb_agentless. */
static __always_inline int with_list(struct xdp_md *ctx, int action)
{
	if (action != TO_LIST)
		return with_agentless(ctx, action);
	if (without_tail_calls)
		return send_planned(ctx);
	bpf_tail_call(ctx, &programs, LIST_PROGRAM);
	return XDP_ABORTED;
}

/* lb_returned sends packets that came back to other servers. */
SEC("xdp.frags")
int lb_returned(struct xdp_md *ctx)
{
	return with_list(ctx, send_on(ctx));
}

const volatile __u32 link_number = 0; /* of the link that the programs are attached to */

/* lb_check sends a frame of user space's making, which asks a server whether it is alive. */
SEC("xdp")
int lb_check(struct xdp_md *ctx)
{
	count(LB_CHECK);
	return bpf_redirect(link_number, 0);
}

/* lb_signal handles the packets for our SIDs. */
SEC("xdp.frags")
int lb_signal(struct xdp_md *ctx)
{
	int action = from_domain(ctx);

	if (action != TO_RETURNED)
		return action;
	if (without_tail_calls)
		return XDP_ABORTED; /* the bench has no such packet */
	bpf_tail_call(ctx, &programs, RETURNED_PROGRAM);
	return XDP_ABORTED;
}

static __always_inline int to_before(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &programs, BEFORE_PROGRAM);
	return XDP_ABORTED;
}

/* lb_behind sends the packets whose ports were behind options. */
SEC("xdp.frags")
int lb_behind(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	const struct service *svc = scr ? service_of(&scr->packet) : NULL;

	if (!svc) /* removed meanwhile */
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	scr->packet.hash = digest(&scr->packet.t);
	if (may_be_before(scr))
		return to_before(ctx);
	return with_list(ctx, with_kept(ctx, dispatch(ctx, &scr->packet, svc, &scr->destination)));
}

/* of_service handles a packet of a service that came to lb_odd. */
static __always_inline int of_service(struct xdp_md *ctx, struct packet *p,
				      const struct service *svc)
{
	int reason = drop_reason(ctx, p);

	if (reason != COUNTERS)
		return verdict(reason, XDP_DROP);
	if (is_stranger(p, svc))
		return verdict(LB_DROP_NOT_ALLOWED, XDP_DROP);
	if (p->hop_limit <= 1)
		return expired(ctx, p);
	bpf_tail_call(ctx, &programs, BEHIND_PROGRAM);
	return XDP_ABORTED;
}

/* lb_odd handles the packets for a VIP that show no ports of a service or have options, those of
 * which the hop limit ends here, and ICMP to this node. */
SEC("xdp.frags")
int lb_odd(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	const struct service *svc;
	struct packet *p;

	if (!scr)
		return XDP_ABORTED;
	if (is_icmp_to_us(ctx))
		return icmp_to_us(ctx, scr);
	p = &scr->packet;
	if (hides(p)) {
		p->reading = xdp_read_upper(ctx, p);
		if (p->reading == READ) /* or not: is_cut decides */
			p->reading = IN_PART;
	}
	svc = has_ports(p) ? service_of(p) : NULL;
	if (svc)
		return of_service(ctx, p, svc);
	return with_list(ctx, without_ports(ctx, p));
}

/* lb_before takes a packet's flow out of the table of before, and lb has the packet again. */
SEC("xdp.frags")
int lb_before(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();

	if (!scr)
		return XDP_ABORTED;
	seek_before(scr);
	bpf_tail_call(ctx, &programs, LB_PROGRAM);
	return XDP_ABORTED;
}

static __always_inline int to_signals(struct xdp_md *ctx)
{
	if (without_tail_calls)
		return BENCH_SIGNAL;
	bpf_tail_call(ctx, &programs, SIGNAL_PROGRAM);
	return XDP_ABORTED;
}

static __always_inline int to_odd(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &programs, ODD_PROGRAM);
	return XDP_ABORTED;
}

/* from_client handles a packet that may be for a VIP. */
static __always_inline int from_client(struct xdp_md *ctx, struct packet *p)
{
	struct scratch *scr;
	const struct service *svc;
	int action, reason;

	p->hash = digest(&p->t);
	action = send_steady(ctx, p);
	if (action != UNDECIDED)
		return action;
	svc = has_ports(p) && p->hop_limit > 1 ? service_of(p) : NULL;
	if (!svc) /* of the host, or for a VIP */
		return is_for_vip(ctx, p) ? to_odd(ctx) : verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	if (p->reading != READ || p->kind == KIND_TOO_BIG) {
		reason = drop_reason(ctx, p);
		if (reason != COUNTERS)
			return verdict(reason, XDP_DROP);
	}
	scr = scratch(); /* again, as the pointer would need stack until here */
	if (!scr)
		return XDP_ABORTED;
	if (is_stranger(p, svc))
		return verdict(LB_DROP_NOT_ALLOWED, XDP_DROP);
	if (may_be_before(scr))
		return to_before(ctx);
	return with_list(ctx, with_kept(ctx, dispatch(ctx, p, svc, &scr->destination)));
}

/* is_ip: the version of the IP header is that of the frame's type. */
static __always_inline bool is_ip(const struct ethhdr *eth, const struct cursor *c)
{
	const __u8 *first = c->pos;

	if (!eth || (void *)(first + 1) > c->end)
		return false;
	return eth->h_proto == bpf_htons(*first >> 4 == 6 ? ETH_P_IPV6 : ETH_P_IP);
}

/* for_another leaves a frame for another link address to the kernel, and notes the address if the packet is
 * for a VIP or for this node. A function of its own, as such frames are rare. */
__noinline int for_another(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip6 = c.pos;
	struct iphdr *ip4 = c.pos;
	struct in6_addr to = {};

	if (eth && eth->h_proto == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= c.end)
		to = ip6->daddr;
	else if (eth && eth->h_proto == bpf_htons(ETH_P_IP) && (void *)(ip4 + 1) <= c.end)
		to = mapped(ip4->daddr);
	if (eth && (is_own(&to) || vip_at(&to)))
		takes(*(const __u64 *)eth & LINK_ADDRESS, true);
	return verdict(LB_PASS_OTHER_HOST, XDP_PASS);
}

/* from_any handles a frame that may not be of a whole packet for a VIP. */
static __always_inline int from_any(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip = c.pos;

	if (!is_ip(eth, &c))
		return verdict(LB_PASS_NOT_IP, XDP_PASS);
	if (!is_taken(eth, false))
		return for_another(ctx);
	if ((void *)(ip + 1) <= c.end && ip->version == 6 && is_own(&ip->daddr))
		return ip->nexthdr == IPPROTO_ICMPV6 ? to_odd(ctx) : to_signals(ctx);
	c = frame_at(ctx, 0);
	p->reading = read_at(c.pos, c.end, ETH_BYTES, p, INWARD);
	return p->reading == NOT_IP ? verdict(LB_PASS_NOT_IP, XDP_PASS) : UNDECIDED;
}

SEC("xdp.frags")
int lb(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	int action;

	if (!scr)
		return XDP_ABORTED;
	if (!read_quick(ctx, &scr->packet)) {
		action = from_any(ctx, &scr->packet);
		if (action != UNDECIDED)
			return action;
	}
	barrier(); /* from here on the verifier looks at all kinds of packets at once */
	return from_client(ctx, &scr->packet);
}

/* read_long reads the packet of a frame that may be long. Generic XDP (6.18) copies a packet of
 * several buffers without its mac_len, so that tc sees it from its IP header on. */
static __always_inline enum reading read_long(struct __sk_buff *skb, struct packet *p, bool *bare)
{
	struct cursor c = frame_at(skb, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));

	*bare = skb->gso_size && eth && !is_taken(eth, false);
	if (!*bare && !is_ip(eth, &c))
		return NOT_IP;
	c = frame_at(skb, 0);
	return *bare ? read_at(c.pos, c.end, 0, p, INWARD)
		     : read_at(c.pos, c.end, ETH_BYTES, p, INWARD);
}

BEHIND(skb, __sk_buff)

/* lb_long has the packets that lb leaves to the stack, LB_PASS_LONG, on tc's way in. */
SEC("tc")
int lb_long(struct __sk_buff *skb)
{
	struct scratch *scr = scratch();
	const struct service *svc;
	struct packet *p;
	bool bare;

	if (!scr || skb->pkt_type != PACKET_HOST)
		return TC_ACT_UNSPEC;
	p = &scr->packet;
	p->reading = read_long(skb, p, &bare);
	if (hides(p))
		p->reading = skb_read_upper(skb, p);
	if (p->reading != READ && p->reading != IN_PART)
		return TC_ACT_UNSPEC;
	svc = long_service(p);
	if (!svc || !svc->buckets || !is_left(p, svc))
		return TC_ACT_UNSPEC;
	if (is_stranger(p, svc))
		return verdict(LB_DROP_NOT_ALLOWED, TC_ACT_SHOT);
	if (bare && bpf_skb_change_head(skb, ETH_BYTES, 0))
		return verdict(LB_DROP_SUPER_PACKET, TC_ACT_SHOT);
	return send_long(skb, scr, svc);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
