// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* edge.bpf.c: the load balancer of EdgeBalance (§3), XDP on the links to the client network, to
 * the world and to the nodes.
 *
 *   packet of a flow         edge_clients, edge_world: a shorter way for most (edge/steady.h);
 *                            parse -> flow -> its node, in VXLAN
 *   … without an entry, or   tail call of edge_new: is its source of its link's side? (edge/sides.h)
 *     not yet looked at
 *   … that begins a flow       prefix -> service -> instance by weight -> entry
 *   … the world's that may     the same without an entry: the node sends it back, if the chain lets it
 *     begin a flow             pass, and then the flow has its entry
 *   … without an entry, or     the nodes are asked for the flow's owner;
 *     of a node that is gone   edge_answer: its instance -> entry; no owner: as if it begins
 *   … of the world, to a     tail call of edge_unbound: word to the client
 *     client of a node that is gone
 *   changed packet of a node edge_back: tunnel -> flow -> learn the tuple after the change
 *                            -> its destination, by the kernel's FIB; or for a client of another
 *                            service, edge_new again: inward through the chain of that
 *   every other packet       to the kernel, untouched */
#include "edge/counters.h"
#include "edge/errors.h"
#include "edge/from_node.h"
#include "edge/narrow_link.h"
#include "edge/recover.h"
#include "edge/samples.h"
#include "edge/sides.h"
#include "edge/steady.h"
#include "edge/sweep.h"
#include "edge/to_node.h"
#include "edge/unbound.h"
#include "packet/link_addresses.h"

/* The link addresses of the two sides, as they begin a frame. As `self` of packet/srv6.h they change
 * while the program runs, in a map of their own. */
__u64 edge_macs[SIDES] SEC(".data.edge_macs") = {};

/* takes_other: this host takes a frame for another link address than that of the side it came by. A packet
 * is for us if its end at the client network is in a prefix of ours. */
__noinline bool takes_other(struct xdp_md *ctx, __u32 side)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct ipv6hdr *ip6 = c.pos;
	struct iphdr *ip4 = c.pos;
	struct in6_addr at;

	if (!eth)
		return false;
	if (eth->h_proto == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= c.end)
		at = side == SIDE_CLIENTS ? ip6->saddr : ip6->daddr;
	else if (eth->h_proto == bpf_htons(ETH_P_IP) && (void *)(ip4 + 1) <= c.end)
		at = mapped(side == SIDE_CLIENTS ? ip4->saddr : ip4->daddr);
	else
		return false;
	return takes((*(const __u64 *)eth & LINK_ADDRESS) | (__u64)side << 48,
		     edge_service_at(&at) >= 0);
}

/* from_side handles a frame of either network. */
static __always_inline int from_side(struct xdp_md *ctx, enum edge_side side)
{
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct edge_scratch *s;
	struct edge_flow *f;
	struct packet *p;
	int action;
	bool shows;
	__u64 word;

	if (!eth || (eth->h_proto != bpf_htons(ETH_P_IP) && eth->h_proto != bpf_htons(ETH_P_IPV6)))
		return verdict(EDGE_PASS_NOT_IP, XDP_PASS);
	if ((*(__u64 *)eth ^ edge_macs[side]) & LINK_ADDRESS && !takes_other(ctx, side))
		return verdict(EDGE_PASS_OTHER_HOST, XDP_PASS);
	action = send_steady(ctx, c, eth->h_proto, side);
	if (action != UNDECIDED)
		return action;
	s = edge_scratch();
	if (!s)
		return XDP_ABORTED;
	c = frame_at(ctx, 0);
	p = &s->packet;
	set_way(s, side == SIDE_WORLD ? WAY_INWARD : 0);
	p->reading = read_at(c.pos, c.end, ETH_BYTES, p, INWARD);
	if (p->reading == NOT_IP)
		return verdict(EDGE_PASS_NOT_IP, XDP_PASS);
	p->reading = read_hidden(ctx, p, p->reading);
	shows = p->reading == READ && shows_flow(ctx, p);
	if (side == SIDE_WORLD)
		reverse(&p->t);
	if (shows) {
		p->hash = edge_hash(p);
		f = edge_flow_of(p->hash);
		word = f ? READ_ONCE(f->word) : 0;
		if (f && p->kind != KIND_ERROR && p->hop_limit > 1 && edge_is_vouched(f, side) &&
		    edge_is_ready(word)) {
			edge_touch(f);
			return send_to_node(ctx, s, word);
		}
	}
	bpf_tail_call(ctx, &edge_programs, PROGRAM_NEW);
	return XDP_ABORTED;
}

SEC("xdp")
int edge_clients(struct xdp_md *ctx)
{
	return from_side(ctx, SIDE_CLIENTS);
}

SEC("xdp")
int edge_world(struct xdp_md *ctx)
{
	return from_side(ctx, SIDE_WORLD);
}

/* begin makes a flow's entry, or gives a flow of a node that is gone another instance: the flow's
 * beginning stays. A packet of the world makes none before a chain let it pass: until then its digest
 * chooses the instance. */
static __always_inline int begin(struct xdp_md *ctx, struct edge_scratch *s, __u32 service)
{
	struct packet *p = &s->packet;
	struct edge_flow *f = edge_flow_of(p->hash);
	bool tries = !f && s->side == SIDE_WORLD;
	__u64 word = edge_choose(service, tries ? (__u32)(p->hash >> 32) ?: 1 : 0), was;
	struct edge_count *n = edge_count_of(word);

	if (!service)
		return verdict(EDGE_DROP_UNSOLICITED, XDP_DROP);
	if (!word || !n)
		return verdict(EDGE_DROP_NO_INSTANCE, XDP_DROP);
	was = f ? READ_ONCE(f->word) : 0;
	word |= f ? was >> EDGE_BEGUN_SHIFT << EDGE_BEGUN_SHIFT : edge_begun(ticked_ns());
	if (tries) {
		s->way |= WAY_RETURNS;
		count(EDGE_FLOW_TRIED);
		return send_to_node(ctx, s, word);
	}
	if (!f)
		f = edge_insert(p, word, 0);
	if (!f)
		return verdict(EDGE_DROP_TABLE_FULL, XDP_DROP);
	vouch(s, f);
	if (was && !edge_is_ready(was) && edge_set_word(f, was, word))
		count(EDGE_FLOW_MOVED);
	else if (!was)
		count(EDGE_FLOW_BEGUN);
	n->flows++;
	return send_to_node(ctx, s, READ_ONCE(f->word)); /* another CPU may have been first */
}

/* unowned handles a packet of a flow that no node has: it begins a flow, unless it is an ICMP error. To
 * an address that functions give to flows the world begins none. */
__noinline int unowned(struct xdp_md *ctx, struct edge_scratch *s, int service)
{
	struct edge_flow *f;
	struct packet *p;

	if (!s)
		return XDP_ABORTED;
	p = &s->packet;
	f = edge_flow_of(p->hash);
	count(EDGE_UNOWNED);
	if (p->kind == KIND_ERROR)
		return verdict(EDGE_DROP_UNSOLICITED, XDP_DROP);
	if (f && f->partner && p->kind != KIND_TCP)
		return end_flow(ctx, p, f->partner);
	return begin(ctx, s, service);
}

/* lost is unowned, unless the packet is the world's to a public end that was bound to a client. */
static __always_inline int lost(struct xdp_md *ctx, struct edge_scratch *s, int service)
{
	const struct edge_flow *f = edge_flow_of(s->packet.hash);

	if (s->side != SIDE_WORLD || !f || !f->partner)
		return unowned(ctx, s, service);
	count(EDGE_UNOWNED);
	bpf_tail_call(ctx, &edge_programs, PROGRAM_UNBOUND);
	return XDP_ABORTED;
}

/* unfit is the reason to drop a packet of the edge's prefixes that shows no flow, or COUNTERS. */
static __always_inline enum counter unfit(struct xdp_md *ctx, struct packet *p)
{
	if (p->kind == KIND_FRAGMENT)
		return EDGE_DROP_FRAGMENT;
	if (p->kind == KIND_SOURCE_ROUTE)
		return EDGE_DROP_SOURCE_ROUTE;
	if (p->reading != READ)
		return EDGE_DROP_MALFORMED;
	return shows_flow(ctx, p) ? COUNTERS : EDGE_DROP_PROTOCOL;
}

/* edge_new handles the packets without an entry, and those whose side is not known by the flow's
 * entry. p->t has the client network's end first. */
SEC("xdp")
int edge_new(struct xdp_md *ctx)
{
	__u32 first, version = READ_ONCE(edge_prefix_version); /* before the prefixes */
	struct edge_scratch *s = edge_scratch();
	enum counter reason;
	struct edge_flow *f;
	struct packet *p;
	int service;
	bool asks;

	if (!s)
		return XDP_ABORTED;
	p = &s->packet;
	if (is_forged_inward(ctx, s))
		return verdict(EDGE_DROP_WRONG_SIDE, XDP_DROP);
	if (bpf_map_lookup_elem(&edge_own, s->side == SIDE_WORLD ? &p->t.client : &p->t.vip))
		return verdict(EDGE_PASS_OWN_ADDRESS, XDP_PASS);
	service = edge_service_at(&p->t.client);
	if (service < 1 && s->side == SIDE_CLIENTS)
		return verdict(EDGE_DROP_WRONG_SIDE, XDP_DROP);
	if (service < 0)
		return verdict(EDGE_PASS_NOT_EDGE, XDP_PASS);
	reason = unfit(ctx, p);
	if (reason != COUNTERS)
		return verdict(reason, XDP_DROP);
	if (p->hop_limit <= 1 && !s->between) {
		if (s->side == SIDE_WORLD)
			reverse(&p->t);
		return expired(ctx, p, s->side);
	}
	find_version(s, version);
	f = edge_flow_of(p->hash);
	if (f && edge_is_ready(READ_ONCE(f->word))) {
		vouch(s, f);
		edge_touch(f);
		return send_to_node(ctx, s, READ_ONCE(f->word));
	}
	asks = may_have_owner(p, service);
	if (asks && !may_ask(p, service)) {
		if (!may_begin(p) || !service) /* a segment comes again */
			return verdict(EDGE_DROP_LIMIT_RECOVER, XDP_DROP);
		count(EDGE_UNASKED);
		asks = false;
	}
	if (!asks)
		return begin(ctx, s, service);
	first = ready_from(0);
	return first < MAX_EDGE_SERVERS ? ask(ctx, s, first) : lost(ctx, s, service);
}

/* updated handles a packet out of its tunnel. */
static __always_inline int updated(struct xdp_md *ctx, struct edge_scratch *s)
{
	struct bpf_fib_lookup fib = {};
	struct packet *p = &s->packet;
	enum counter reason;
	long way;

	p->reading = leave_tunnel(ctx, &s->outer, p);
	if (p->kind == KIND_FRAGMENT)
		return verdict(EDGE_DROP_FRAGMENT, XDP_DROP);
	if (p->reading != READ || !shows_flow(ctx, p))
		return verdict(EDGE_DROP_MALFORMED, XDP_DROP);
	set_way(s, s->outer.way);
	if (s->side == SIDE_WORLD)
		reverse(&p->t);
	p->hash = edge_hash(p);
	reason = learn(p, &s->outer);
	if (reason != EDGE_UPDATE_LEARNED && reason != EDGE_UPDATE_KNOWN)
		return verdict(reason, XDP_DROP);
	if (restore(ctx, &s->outer, p))
		return verdict(EDGE_DROP_CONGESTED, XDP_DROP);
	if (s->side == SIDE_CLIENTS && edge_service_at(&p->t.vip) >= 0) {
		count(reason);
		turn_inward(s);
		bpf_tail_call(ctx, &edge_programs, PROGRAM_NEW);
		return XDP_ABORTED;
	}
	way = find_way(ctx, p, &fib);
	if (way == BPF_FIB_LKUP_RET_FRAG_NEEDED && is_narrowed(s)) {
		p->mtu = fib.mtu_result;
		bpf_tail_call(ctx, &edge_programs, PROGRAM_NARROW);
		return XDP_ABORTED;
	}
	return take_way(ctx, p, &fib, way, reason, EDGE_PASS_TO_ROUTER, EDGE_DROP_LIMIT_NEIGHBOUR);
}

/* edge_answer handles a packet that went to a node as a question. */
SEC("xdp")
int edge_answer(struct xdp_md *ctx)
{
	struct edge_scratch *s = edge_scratch();
	enum counter reason;
	struct edge_flow *f;
	struct packet *p;
	__u32 next;
	int service;

	if (!s)
		return XDP_ABORTED;
	p = &s->packet;
	p->reading = leave_tunnel(ctx, &s->outer, p);
	if (p->reading != READ || !shows_flow(ctx, p))
		return verdict(EDGE_DROP_MALFORMED, XDP_DROP);
	if (restore(ctx, &s->outer, p))
		return verdict(EDGE_DROP_CONGESTED, XDP_DROP);
	set_way(s, s->outer.way);
	if (s->side == SIDE_WORLD)
		reverse(&p->t);
	p->hash = edge_hash(p);
	service = edge_service_at(&p->t.client);
	if (p->hash != s->outer.flow || service < 0)
		return verdict(EDGE_DROP_OTHER_PACKET, XDP_DROP);
	if (s->outer.message == MESSAGE_UNBOUND)
		return given_back(ctx, s);
	f = edge_flow_of(p->hash);
	if (f && edge_is_ready(READ_ONCE(f->word))) /* another packet was first */
		return send_to_node(ctx, s, READ_ONCE(f->word));
	if (s->outer.message == MESSAGE_NOT_MINE) {
		next = ready_from(edge_server(s->outer.vni) + 1);
		return next < MAX_EDGE_SERVERS ? ask(ctx, s, next) : lost(ctx, s, service);
	}
	reason = learn_owner(p, &s->outer);
	if (reason != EDGE_RECOVERED)
		return verdict(reason, XDP_DROP);
	count(reason);
	f = edge_flow_of(p->hash);
	return f ? send_to_node(ctx, s, READ_ONCE(f->word)) : XDP_ABORTED;
}

/* edge_back handles the frames of a link to nodes. */
SEC("xdp")
int edge_back(struct xdp_md *ctx)
{
	struct edge_scratch *s = edge_scratch();
	enum counter reason;
	enum edge_read how;
	struct in6_addr to;

	if (!s)
		return XDP_ABORTED;
	how = read_tunnel(ctx, &s->outer);
	to = s->outer.to;
	if (how == EDGE_NOT_TUNNEL || !bpf_map_lookup_elem(&edge_own, &to))
		return verdict(EDGE_PASS_NOT_TUNNEL, XDP_PASS);
	if (how == EDGE_IN_FRAGMENTS)
		return verdict(EDGE_DROP_FRAGMENT, XDP_DROP);
	if (how == EDGE_MALFORMED)
		return verdict(EDGE_DROP_MALFORMED_TUNNEL, XDP_DROP);
	reason = stranger(&s->outer);
	if (reason != COUNTERS)
		return verdict(reason, XDP_DROP);
	edge_note_answer(edge_server(s->outer.vni));
	if (s->outer.message == MESSAGE_ALIVE)
		return verdict(EDGE_ALIVE, XDP_DROP);
	if (s->outer.message == MESSAGE_PACKET)
		return updated(ctx, s);
	bpf_tail_call(ctx, &edge_programs, PROGRAM_ANSWER);
	return XDP_ABORTED;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
