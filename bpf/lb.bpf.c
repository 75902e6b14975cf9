// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* lb.bpf.c: the load balancer, XDP on its one link.
 *
 *   client's packet for a VIP   service? -> flow known? -> steer | offer | recover
 *   server's packet for our SID whose? -> learn (cs) | forget (rms) -> to the client
 *   everything else             to the kernel, untouched */
#include "types.h"

enum counter {
	LB_PASS_NOT_IPV6,
	LB_PASS_NOT_SERVICE,
	LB_PASS_OWN_ADDRESS,
	LB_OFFER,
	LB_OFFER_AGAIN,
	LB_DELIVER,
	LB_STEER,
	LB_RECOVER,
	LB_FLOW_ACKNOWLEDGED,
	LB_STICKINESS_CREATED,
	LB_STICKINESS_REPEATED,
	LB_STICKINESS_REMOVED,
	LB_REMOVE_UNKNOWN,
	LB_REMOVE_OLD_GENERATION,
	LB_TABLE_FULL,
	LB_DROP_STICKINESS_CONFLICT,
	LB_DROP_UNKNOWN_FUNCTION,
	LB_DROP_SEGMENTS_LEFT,
	LB_DROP_UNKNOWN_SENDER,
	LB_DROP_NOT_FROM_VIP,
	LB_DROP_TRUNCATED,
	LB_DROP_MALFORMED_TCP,
	LB_DROP_MALFORMED_SRH,
	LB_DROP_NOT_IPV6_INSIDE,
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

#include "dispatch.h"
#include "learn.h"
#include "send.h"

/* not_tcp decides on a packet that is not TCP for anyone. */
static __always_inline int not_tcp(const struct ipv6hdr *ip)
{
	if (!is_extension_header(ip->nexthdr) || !is_vip(&ip->daddr))
		return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return verdict(LB_DROP_FRAGMENT, XDP_DROP);
	return verdict(LB_DROP_EXTENSION_HEADER, XDP_DROP);
}

/* from_client handles a packet that may be for a VIP. */
static __always_inline int from_client(struct xdp_md *ctx, struct cursor *c, struct ipv6hdr *ip,
				       bool whole)
{
	struct segment s = { .ip = ip };
	const struct service *svc;
	__be16 *ports;
	struct flow *f;
	struct tuple t;

	if (ip->nexthdr != IPPROTO_TCP)
		return not_tcp(ip);
	ports = c->pos; /* RFC 9293 §3.1: source, destination */
	if ((void *)(ports + 2) > c->end)
		return is_vip(&ip->daddr) ? verdict(LB_DROP_TRUNCATED, XDP_DROP)
					  : verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	svc = service_at(&ip->daddr, ports[1], IPPROTO_TCP);
	if (!svc)
		return verdict(LB_PASS_NOT_SERVICE, XDP_PASS);
	if (!whole)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	if (!take_tcp(c, &s))
		return verdict(LB_DROP_MALFORMED_TCP, XDP_DROP);

	t = tuple_inward(&s);
	if (svc->dispatch == DISPATCH_SINGLE)
		return single(ctx, &s, &t, svc);
	f = flow_find(&t);
	if (f && !opens(s.tcp))
		return steer(ctx, &s, &t, f);
	return hunt(ctx, &s, &t, svc, f);
}

/* from_server handles a packet for one of our SIDs. */
static __always_inline int from_server(struct xdp_md *ctx, struct cursor *c, struct ipv6hdr *outer)
{
	struct segment s;
	struct sr sr;
	enum counter why;
	__u16 generation;
	struct tuple t;
	__u32 *server;
	__u16 fn;

	switch (take_sr(ctx, c, outer, &sr)) {
	case MALFORMED_SRH:
		return verdict(LB_DROP_MALFORMED_SRH, XDP_DROP);
	case NOT_IPV6_INSIDE:
		return verdict(LB_DROP_NOT_IPV6_INSIDE, XDP_DROP);
	default:
		break;
	}
	fn = bpf_ntohs(sr.sid.function_be);
	if (fn != FN_CREATE_STICKINESS && fn != FN_REMOVE_STICKINESS)
		return verdict(LB_DROP_UNKNOWN_FUNCTION, XDP_DROP);
	if (sr.next)
		return verdict(LB_DROP_SEGMENTS_LEFT, XDP_DROP);
	server = bpf_map_lookup_elem(&server_by_locator, &sr.sender_be);
	if (!server)
		return verdict(LB_DROP_UNKNOWN_SENDER, XDP_DROP);
	s.ip = take_inner(c, &sr);
	if (!s.ip)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	if (s.ip->nexthdr != IPPROTO_TCP)
		return verdict(LB_DROP_NOT_FROM_VIP, XDP_DROP);
	if (!take_tcp(c, &s))
		return verdict(LB_DROP_MALFORMED_TCP, XDP_DROP);
	if (!service_at(&s.ip->saddr, s.tcp->source, IPPROTO_TCP))
		return verdict(LB_DROP_NOT_FROM_VIP, XDP_DROP);

	t = tuple_outward(&s);
	generation = bpf_ntohs(sr.sid.generation_be);
	why = fn == FN_CREATE_STICKINESS ? learn(&t, *server, generation)
					 : forget(&t, s.tcp, *server, generation);
	if (why == LB_DROP_STICKINESS_CONFLICT)
		return verdict(why, XDP_DROP);
	return unwrap(ctx, &sr, s.ip, why);
}

SEC("xdp")
int lb(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct ipv6hdr *ip;
	bool whole;

	if (!take_ethernet(&c))
		return verdict(LB_PASS_NOT_IPV6, XDP_PASS);
	ip = take(&c, sizeof(*ip));
	if (!ip || ip->version != 6)
		return verdict(LB_PASS_NOT_IPV6, XDP_PASS);
	whole = c.pos + bpf_ntohs(ip->payload_len) <= c.end;
	if (!is_own(&ip->daddr))
		return from_client(ctx, &c, ip, whole);
	if (!((const struct sid *)&ip->daddr)->function_be)
		return verdict(LB_PASS_OWN_ADDRESS, XDP_PASS);
	if (!whole)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	return from_server(ctx, &c, ip);
}

/* sweep removes the entries whose time has run out; the daemon runs it. */
SEC("syscall")
int sweep_flows(struct sweep *ctx)
{
	struct sweep s = *ctx;

	bpf_for_each_map_elem(&flows, sweep_flow, &s, 0);
	ctx->kept = s.kept;
	ctx->removed = s.removed;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
