/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* user.h: a function in user space (userspace/), which polls an AF_XDP socket. Each core has a pair of
 * links and a socket of its own:
 *
 *   node_user    the packet back into its tunnel's headers -> out of the pair's near end
 *   node_hand    the far end: -> the socket
 *   node_resume  the near end: a frame of user space: out of the tunnel -> the rest of the chain
 *
 * The headers bear flow, instance and direction, and the update flag if the packet is changed so far;
 * user space sets it with a change of its own. */
#pragma once
#include "edge/node_config.h"
#include "edge/node_flows.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_CORES);
	__type(key, __u32);
	__type(value, struct user_link);
} user_links SEC(".maps");

/* The sockets, by core. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_EDGE_CORES);
	__type(key, __u32);
	__type(value, __u32);
} user_sockets SEC(".maps");

/* One more than the place of the function in a service's chain, outward; 0: it has none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_EDGE_SERVICES);
	__type(key, __u32);
	__type(value, __u32);
} user_places SEC(".maps");

static __always_inline struct user_link *user_link_of(__u32 core)
{
	struct user_link *u = bpf_map_lookup_elem(&user_links, &core);

	return u && u->index ? u : NULL;
}

SEC("xdp")
int node_user(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	struct edge_end e = {}, *lb;
	struct user_link *u;

	if (!s)
		return XDP_ABORTED;
	u = user_link_of(edge_core(s->outer.vni));
	lb = lb_of(&s->outer);
	if (!u || !lb)
		return verdict(NODE_DROP_NO_USER, XDP_DROP);
	copy_address(&e.to, &s->outer.to);
	copy_address(&e.from, &s->outer.from);
	e.sum = lb->sum; /* the same both ways */
	__builtin_memcpy(e.mac, u->mac, ETH_ALEN);
	__builtin_memcpy(e.own, u->mac, ETH_ALEN);
	/* The world's packets begin nothing before the end of their chain. */
	if (!s->inward || kept_instance(s->flow))
		keep_before(s);
	if (enter_tunnel(ctx, &s->packet, &e, s->outer.flow,
			 s->outer.vni | (s->changed ? EDGE_UPDATE : 0),
			 MESSAGE_PACKET | s->outer.way))
		return verdict(NODE_DROP_NO_HEADROOM, XDP_DROP);
	count(NODE_USER_GIVEN);
	return bpf_redirect(u->index, 0);
}

/* node_hand gives a frame to its core's socket. */
SEC("xdp")
int node_hand(struct xdp_md *ctx)
{
	struct edge_outer o = {};
	__u32 core;

	if (read_tunnel(ctx, &o) != EDGE_READ)
		return verdict(NODE_PASS_NOT_TUNNEL, XDP_PASS);
	core = edge_core(o.vni);
	if (!bpf_map_lookup_elem(&user_sockets, &core))
		return verdict(NODE_DROP_NO_USER, XDP_DROP);
	return bpf_redirect_map(&user_sockets, core, XDP_DROP);
}

/* user_passed is the number of functions that a packet from user space has passed, or 0. */
static __always_inline __u32 user_passed(const struct node_state *s)
{
	__u32 service = edge_service_of(s->outer.vni), *place;

	place = bpf_map_lookup_elem(&user_places, &service);
	if (!place || !*place || *place > s->length)
		return 0;
	return s->inward ? s->length - *place + 1 : *place;
}

SEC("xdp")
int node_resume(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	struct user_link *u;
	struct packet *p;

	if (!s)
		return XDP_ABORTED;
	if (read_tunnel(ctx, &s->outer) != EDGE_READ)
		return verdict(NODE_PASS_NOT_TUNNEL, XDP_PASS);
	s->changed = !!(s->outer.vni & EDGE_UPDATE);
	s->outer.vni &= EDGE_INSTANCE;
	p = &s->packet;
	p->reading = leave_tunnel(ctx, &s->outer, p);
	u = user_link_of(edge_core(s->outer.vni));
	if (p->reading != READ || !shows_flow(ctx, p) || !u || u->index != ctx->ingress_ifindex)
		return verdict(NODE_DROP_USER_FRAME, XDP_DROP);
	enter_chain(s);
	note_flow(s);
	s->passed = user_passed(s);
	if (!s->passed || restore(ctx, &s->outer, p))
		return verdict(NODE_DROP_USER_FRAME, XDP_DROP);
	count(NODE_USER_BACK);
	return call_function(ctx, s);
}
