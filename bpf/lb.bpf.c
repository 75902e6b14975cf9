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

#include "count.h"
#include "flow.h"
#include "nexthop.h"
#include "service.h"
#include "srv6.h"

/* Where a client's packet goes: its segments, first to last. */
struct route {
	const struct server *first;
	__u32 n;
	struct sid segment[MAX_CHOICES];
};

/* send_out encapsulates towards r->first and transmits. */
static __always_inline int send_out(struct xdp_md *ctx, struct ipv6hdr *inner, const struct tuple *t,
				    const struct route *r, enum counter why)
{
	__u32 extra = r->n > 1 ? 8 + 16 * (r->n - 1) : 0;
	__u32 length = sizeof(*inner) + bpf_ntohs(inner->payload_len);
	__u8 class = traffic_class(inner), mac[ETH_ALEN];
	struct in6_addr to = sid_address(&r->segment[0]);
	struct in6_addr *list;
	struct ipv6hdr *outer;
	struct ethhdr *eth;
	struct cursor c;
	struct srh *srh;

	if (!r->first->ready)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	if (inner->hop_limit <= 1)
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	if (length + extra + sizeof(*outer) > self.mtu)
		return verdict(LB_DROP_TOO_BIG, XDP_DROP);
	__builtin_memcpy(mac, r->first->mac, ETH_ALEN);
	inner->hop_limit--; /* RFC 2473 §3.1: forwarded into the tunnel */
	if (bpf_xdp_adjust_head(ctx, -(int)(sizeof(*outer) + extra)))
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);

	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	outer = take(&c, sizeof(*outer));
	if (!eth || !outer)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	link_header(eth, mac);
	outer_header(outer, &to, class, flow_label(t), length + extra,
		     extra ? IPPROTO_ROUTING : IPPROTO_IPV6);
	if (!extra)
		return transmit(why);

	srh = take(&c, sizeof(*srh));
	if (!srh)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	*srh = (struct srh){
		.next_header = IPPROTO_IPV6,
		.length = 2 * (r->n - 1),
		.type = SRH_TYPE,
		.segments_left = r->n - 1,
		.last_entry = r->n - 2,
	};
	for (__u32 i = MAX_CHOICES - 1; i > 0; i--) { /* last segment first */
		if (i >= r->n)
			continue;
		list = take(&c, sizeof(*list));
		if (!list)
			return verdict(LB_DROP_TRUNCATED, XDP_DROP);
		*list = sid_address(&r->segment[i]);
	}
	return transmit(why);
}

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

/* learn and forget are createStickiness and removeStickiness. */
static __always_inline enum counter learn(const struct tuple *t, __u32 server, __u16 generation)
{
	switch (flow_create(t, server, generation, now_ns())) {
	case CREATED:
		return LB_STICKINESS_CREATED;
	case CREATED_AGAIN:
		return LB_STICKINESS_REPEATED;
	case CONFLICT:
		return LB_DROP_STICKINESS_CONFLICT;
	default:
		return LB_TABLE_FULL;
	}
}

static __always_inline enum counter forget(const struct tuple *t, const struct tcphdr *tcp,
					   __u32 server, __u16 generation)
{
	struct flow *f = flow_find(t);

	if (!f)
		return LB_REMOVE_UNKNOWN;
	if (f->generation != generation || f->server != server)
		return LB_REMOVE_OLD_GENERATION;
	flow_touch(f, now_ns());
	flow_close(f, tcp->rst ? CLOSED_RESET : CLOSED_SERVER);
	return LB_STICKINESS_REMOVED;
}

/* unwrap strips what a server put around its packet and sends it to the client. */
static __always_inline int unwrap(struct xdp_md *ctx, const struct sr *sr, struct ipv6hdr *inner,
				  enum counter why)
{
	const struct next_hop *hop;
	struct in6_addr client = inner->daddr;
	struct ethhdr *eth;
	struct cursor c;

	if (inner->hop_limit <= 1)
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	if (!ecn_inward(inner, sr->outer))
		return verdict(LB_DROP_CONGESTED, XDP_DROP);
	hop = next_hop_to(&client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	inner->hop_limit--;
	if (bpf_xdp_adjust_head(ctx, sr->overhead))
		return verdict(LB_DROP_NO_HEADROOM, XDP_DROP);
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	eth = take(&c, sizeof(*eth));
	if (!eth)
		return verdict(LB_DROP_TRUNCATED, XDP_DROP);
	link_header(eth, hop->mac);
	return transmit(why);
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
