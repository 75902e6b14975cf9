// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* lb.bpf.c: the load balancer, XDP on its one link.
 *
 *   client's packet for a VIP   service? -> flow known? -> steer | offer | recover
 *   packet for one of our SIDs  whose?  -> cs, rms: learn, forget -> to the client
 *                                          nm, rs: not theirs -> to other servers
 *   packet too big for our SR   whose?  -> too big for the client, then
 *   everything else             to the kernel, untouched */
#include "core/types.h"

enum counter {
	LB_PASS_NOT_IP,
	LB_PASS_NOT_SERVICE,
	LB_PASS_OWN_ADDRESS,
	LB_OFFER,
	LB_OFFER_AGAIN,
	LB_OFFER_RETRY,
	LB_OFFER_RETURNED,
	LB_OFFER_DATAGRAM,
	LB_DELIVER,
	LB_STEER,
	LB_RECOVER,
	LB_RECOVER_RETURNED,
	LB_LIST_CONTINUED,
	LB_FLOW_ESTABLISHED,
	LB_STICKINESS_CREATED,
	LB_STICKINESS_RECOVERED,
	LB_STICKINESS_REPEATED,
	LB_STICKINESS_REMOVED,
	LB_STICKINESS_CONFLICT,
	LB_CREATE_OLD_GENERATION,
	LB_REMOVE_UNKNOWN,
	LB_REMOVE_OLD_GENERATION,
	LB_STALE_REMOVED,
	LB_REJECT,
	LB_TABLE_FULL,
	LB_ECHO_REPLY,
	LB_TOO_BIG,
	LB_TOO_BIG_TRANSLATED,
	LB_MSS_CLAMPED,
	LB_DROP_STICKINESS_CONFLICT,
	LB_DROP_OUTSIDE,
	LB_DROP_BAD_TAG,
	LB_DROP_UNKNOWN_FUNCTION,
	LB_DROP_SEGMENTS_LEFT,
	LB_DROP_UNKNOWN_SENDER,
	LB_DROP_NOT_FROM_VIP,
	LB_DROP_TRUNCATED,
	LB_DROP_MALFORMED_TRANSPORT,
	LB_DROP_MALFORMED_SRH,
	LB_DROP_NOTHING_INSIDE,
	LB_DROP_MALFORMED_TOO_BIG,
	LB_DROP_SMALL_MTU,
	LB_DROP_FRAGMENT,
	LB_DROP_EXTENSION_HEADER,
	LB_DROP_HOP_LIMIT,
	LB_DROP_TOO_BIG,
	LB_DROP_CONGESTED,
	LB_DROP_NO_SERVER,
	LB_DROP_NO_NEXT_HOP,
	LB_DROP_NO_HEADROOM,
	COUNTERS,
};

#include "core/domain.h"
#include "lb/signalled.h"
#include "lb/sweep.h"

/* has_ports tells whether a packet says which service it is of. */
static __always_inline bool has_ports(const struct packet *p)
{
	return p->kind >= KIND_TCP && p->kind <= KIND_TOO_BIG;
}

/* without_ports decides on a packet that shows none, or those of no service. */
__noinline int without_ports(struct xdp_md *ctx, struct packet *p)
{
	const struct service *vip = p ? vip_at(&p->t.vip) : NULL;
	struct destination d;

	if (!vip)
		return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	if (p->reading == TRUNCATED && !has_ports(p))
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	switch (p->kind) {
	case KIND_FRAGMENT:
		if (!vip->buckets)
			return verdict(LB_DROP_FRAGMENT, XDP_DROP);
		by_hash(p, vip, &d);
		return send_routed(ctx, p, vip, &d);
	case KIND_EXTENSION:
		return verdict(LB_DROP_EXTENSION_HEADER, XDP_DROP);
	case KIND_ECHO:
		return write_echo_reply(ctx, p) ? verdict(LB_DROP_TRUNCATED, XDP_DROP)
						: transmit(LB_ECHO_REPLY);
	case KIND_UDP: /* or TCP, to another port */
	default:
		return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	}
}

/* drop_reason returns why a packet of a service is dropped, or COUNTERS. An ICMP error whose
 * own length does not reach the ports that it quotes is too short: they were the
 * link's padding. A function of its own: of most packets nobody need ask. */
__noinline int drop_reason(const struct packet *p)
{
	if (!p || p->reading == MALFORMED)
		return LB_DROP_MALFORMED_TRANSPORT;
	if (p->kind == KIND_TOO_BIG &&
	    p->length < 2 * ip_bytes(p) + sizeof(struct icmp) + 2 * sizeof(__be16))
		return LB_DROP_MALFORMED_TRANSPORT;
	if (p->reading != READ)
		return LB_DROP_TRUNCATED;
	if (p->kind == KIND_TOO_BIG && p->family == 6 && p->mtu < MIN_MTU6)
		return LB_DROP_SMALL_MTU;
	return COUNTERS;
}

/* from_client handles a packet that may be for a VIP. */
static __always_inline int from_client(struct xdp_md *ctx, struct scratch *scr)
{
	struct packet *p = &scr->packet;
	const struct service *svc = has_ports(p) ? service_of(p) : NULL;
	int reason;

	if (!svc)
		return without_ports(ctx, p);
	if (p->reading != READ || p->kind == KIND_TOO_BIG) {
		reason = drop_reason(p);
		if (reason != COUNTERS)
			return verdict(reason, XDP_DROP);
	}
	p->hash = digest(&p->t);
	return dispatch(ctx, p, svc, &scr->destination);
}

/* malformed_sr is the verdict on an SR packet that cannot be opened. */
__noinline int malformed_sr(int how)
{
	switch (how) {
	case MALFORMED_SRH:
		return verdict(LB_DROP_MALFORMED_SRH, XDP_DROP);
	case MALFORMED_TRANSPORT:
		return verdict(LB_DROP_MALFORMED_TRANSPORT, XDP_DROP);
	case NOTHING_INSIDE:
		return verdict(LB_DROP_NOTHING_INSIDE, XDP_DROP);
	default:
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	}
}

/* function_of reads the function anew: to the verifier it is any of them again. */
static __always_inline __u16 function_of(const struct sr *sr)
{
	return bpf_ntohs(*(const volatile __be16 *)&sr->sid.function_be);
}

/* from_domain handles a packet for one of our SIDs. A function of its own, so that
 * the way of the others has its stack. */
__noinline int from_domain(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct ipv6hdr *ip = take(&c, sizeof(*ip));
	struct scratch *scr = scratch();
	const struct service *svc;
	__u32 number = NO_SERVER, *server;
	struct packet *p;
	struct sr *sr;
	bool answer;
	__u16 fn;
	int how;

	if (!scr || !ip)
		return XDP_ABORTED;
	p = &scr->packet;
	sr = &scr->sr;
	fn = bpf_ntohs(((const struct sid *)&ip->daddr)->function_be);
	if (!fn)
		return verdict(LB_PASS_OWN_ADDRESS, XDP_PASS);
	answer = fn == FN_CREATE_STICKINESS || fn == FN_REMOVE_STICKINESS;
	if (!answer && fn != FN_NOT_MINE && fn != FN_RECOVER_STICKINESS)
		return verdict(LB_DROP_UNKNOWN_FUNCTION, XDP_DROP);
	how = open_sr(ctx, sr, p, answer ? OUTWARD : INWARD);
	if (how != OPENED)
		return malformed_sr(how);
	fn = function_of(sr);
	if (sr->left > p->inserted) /* an inserted list ends in the packet's destination */
		return verdict(LB_DROP_SEGMENTS_LEFT, XDP_DROP);
	if (!is_inside(sr->sender_be))
		return verdict(LB_DROP_OUTSIDE, XDP_DROP);
	if (sr->sender_be != self.locator_be || fn != FN_RECOVER_STICKINESS) {
		server = bpf_map_lookup_elem(&server_by_locator, &sr->sender_be);
		if (!server || fn == FN_RECOVER_STICKINESS)
			return verdict(LB_DROP_UNKNOWN_SENDER, XDP_DROP);
		number = *server;
	}
	scr->sender = number;
	svc = has_ports(p) ? service_of(p) : NULL;
	if (!svc || svc->dispatch != DISPATCH_HUNT)
		return verdict(LB_DROP_NOT_FROM_VIP, XDP_DROP);
	p->hash = digest(&p->t);
	if (signing_key() && !signed_by(ctx, sr, p, scr->sender))
		return verdict(LB_DROP_BAD_TAG, XDP_DROP);
	fn = function_of(sr);
	if (fn == FN_CREATE_STICKINESS || fn == FN_REMOVE_STICKINESS)
		return forward_answer(ctx, scr, svc);
	if (fn == FN_NOT_MINE)
		return handle_not_mine(ctx, sr, p, svc, number);
	return continue_list(ctx, sr, p, svc);
}

/* Where a router's word quotes our outer header: behind its own and ICMP's. */
#define QUOTED_AT (SRH_AT + (__u32)sizeof(struct icmp))

/* quoted_inner returns where the client's packet is in a frame that quotes one
 * of our outer packets, or 0. */
static __always_inline __u32 quoted_inner(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, QUOTED_AT);
	struct ipv6hdr *outer = take(&c, sizeof(*outer));
	struct srh *srh;

	if (!outer || outer->version != 6 || !is_own(&outer->saddr))
		return 0;
	if (outer->nexthdr == IPPROTO_IPV6 || outer->nexthdr == IPPROTO_IPIP)
		return QUOTED_AT + sizeof(*outer);
	srh = take(&c, sizeof(*srh));
	if (!srh || outer->nexthdr != IPPROTO_ROUTING || srh->type != SRH_TYPE)
		return 0;
	return QUOTED_AT + sizeof(*outer) + sizeof(*srh) + srh->length * 8;
}

#define UNQUOTED (-1)

/* unquote makes a router's word, that one of our outer packets was too big, the
 * client's packet in there: UNQUOTED, or the verdict on what is none. A function of
 * its own, as it is rare. */
__noinline int unquote(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, SRH_AT);
	struct icmp *icmp = take(&c, sizeof(*icmp));
	struct scratch *scr = scratch();
	__u32 at, mtu;

	if (!icmp || !scr || icmp->type != ICMP6_TOO_BIG)
		return verdict(LB_PASS_OWN_ADDRESS, XDP_PASS);
	mtu = bpf_ntohl(icmp->rest);
	at = quoted_inner(ctx);
	if (!at || mtu <= at - QUOTED_AT)
		return verdict(LB_DROP_MALFORMED_TOO_BIG, XDP_DROP);
	if (bpf_xdp_adjust_head(ctx, at - ETH_BYTES))
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);
	scr->quoted_mtu = mtu - (at - QUOTED_AT);
	return UNQUOTED;
}

/* translate_too_big tells the client what a router said of our outer packet, as if it were
 * about its own (RFC 2473 §7.1). mtu is 0 if no router did: then the frame is not IP. */
__noinline int translate_too_big(struct xdp_md *ctx, const struct packet *p, __u32 mtu)
{
	const struct next_hop *hop;

	if (!mtu)
		return verdict(LB_PASS_NOT_IP, XDP_PASS);
	if (!p || (p->reading != READ && p->reading != TRUNCATED) || !has_ports(p) || !service_of(p))
		return verdict(LB_DROP_MALFORMED_TOO_BIG, XDP_DROP);
	if (p->kind == KIND_TOO_BIG) /* no error about an error (RFC 4443 §2.4) */
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	hop = next_hop_to(&p->t.client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (write_too_big(ctx, p, mtu) || link_to(ctx, hop->mac, p->family))
		return verdict(LB_DROP_MALFORMED_TOO_BIG, XDP_DROP);
	return transmit(LB_TOO_BIG_TRANSLATED);
}

/* is_ip tells a frame of IP, of the version that its type says. */
static __always_inline bool is_ip(const struct ethhdr *eth, const struct cursor *c)
{
	const __u8 *first = c->pos;

	if (!eth || (void *)(first + 1) > c->end)
		return false;
	return eth->h_proto == bpf_htons(*first >> 4 == 6 ? ETH_P_IPV6 : ETH_P_IP);
}

SEC("xdp")
int lb(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip = c.pos;
	struct scratch *scr = scratch();
	struct packet *p;
	int said;

	if (!scr)
		return XDP_ABORTED;
	if (!is_ip(eth, &c))
		return verdict(LB_PASS_NOT_IP, XDP_PASS);
	scr->quoted_mtu = 0;
	if ((void *)(ip + 1) <= c.end && ip->version == 6 && is_own(&ip->daddr)) {
		if (ip->nexthdr != IPPROTO_ICMPV6)
			return from_domain(ctx);
		said = unquote(ctx);
		if (said != UNQUOTED)
			return said;
	}
	p = &scr->packet;
	c = frame_at(ctx, 0);
	p->reading = read_at(c.pos, c.end, ETH_BYTES, p, INWARD);
	barrier(); /* from here on the verifier looks at all kinds of packets at once */
	if (scr->quoted_mtu || p->reading == NOT_IP)
		return translate_too_big(ctx, p, scr->quoted_mtu);
	return from_client(ctx, scr);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
