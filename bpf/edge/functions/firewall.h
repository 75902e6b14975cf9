/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* firewall.h: a stateful firewall. The first packet of a connection meets the rules in order, and
 * the first rule that fits decides; without a rule the connection is denied. The packets after it,
 * in both directions, pass by the connection's state. A TCP connection begins with a SYN. */
#pragma once
#include "edge/closing.h"
#include "edge/refuse.h"
#include "table/ages.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SLOTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct firewall_setting);
} firewall_settings SEC(".maps");

/* The connections, by their flows' tuples. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct node_flow);
	__type(value, struct firewall_state);
} firewall_states SEC(".maps");

static __always_inline bool is_in_net(const struct in6_addr *a, const struct firewall_net *n)
{
	const __u64 *addr = (const void *)a, *net = (const void *)&n->net,
		    *mask = (const void *)&n->mask;

	return !(((addr[0] & mask[0]) ^ net[0]) | ((addr[1] & mask[1]) ^ net[1]));
}

static __always_inline bool fits(const struct firewall_rule *r, const struct tuple *t)
{
	__u16 port = bpf_ntohs(t->vip_port_be);

	return (!r->protocol || r->protocol == t->protocol) && port >= r->low && port <= r->high &&
	       is_in_net(&t->client, &r->source) && is_in_net(&t->vip, &r->destination);
}

/* is_allowed looks for the rule of a connection's first packet. */
__noinline bool is_allowed(const struct firewall_setting *set, const struct tuple *t)
{
	if (!set || !t)
		return false;
	for (__u32 i = 0; i < MAX_RULES && i < set->rules; i++)
		if (fits(&set->rule[i], t))
			return set->rule[i].allow;
	return false;
}

/* admit decides on a packet without state. */
static __always_inline enum counter admit(const struct node_state *s, const struct node_flow *k)
{
	struct firewall_state fresh = { .seen = ticked_ns() };
	const struct firewall_setting *set;
	const struct packet *p = &s->packet;
	struct tuple t = p->t;
	__u32 slot = k->slot;

	if (p->kind == KIND_ERROR || (p->kind == KIND_TCP && !opens(p)))
		return NODE_DROP_FIREWALL_STATE;
	set = bpf_map_lookup_elem(&firewall_settings, &slot);
	if (!set || !is_allowed(set, &t))
		return NODE_DROP_FIREWALL_DENIED;
	if (p->kind == KIND_TCP)
		follow(s->inward ? &fresh.inward : &fresh.outward, p);
	if (bpf_map_update_elem(&firewall_states, k, &fresh, BPF_ANY))
		return NODE_DROP_FIREWALL_FULL;
	count(NODE_FIREWALL_ADMITTED);
	return COUNTERS;
}

static __always_inline bool is_closed(const struct firewall_state *f)
{
	return f->closed & FIREWALL_RST || (f->closed & FIREWALL_FINS) == FIREWALL_FINS;
}

/* note_segment follows a segment, and keeps which ends closed. */
static __always_inline void note_segment(struct firewall_state *f, const struct packet *p,
					 bool inward)
{
	struct tcp_side *side = inward ? &f->inward : &f->outward;

	if (p->flags & TCP_RST) {
		if (is_reset(p, side, inward ? &f->outward : &f->inward))
			f->closed |= FIREWALL_RST;
		return;
	}
	if (!inward && begins_again(p)) {
		f->closed = 0;
		f->outward = f->inward = (struct tcp_side){};
	}
	if (!inward && f->closed & FIREWALL_RST)
		f->closed &= ~FIREWALL_RST;
	if (follow(side, p) && p->flags & TCP_FIN)
		f->closed |= inward ? FIREWALL_FIN_INWARD : FIREWALL_FIN_OUTWARD;
}

/* note_packet keeps a connection's state. */
static __always_inline void note_packet(const struct node_state *s, struct firewall_state *f)
{
	__u64 now = ticked_ns();

	if (f->seen != now)
		f->seen = now;
	if (s->packet.kind == KIND_TCP)
		note_segment(f, &s->packet, s->inward);
}

SEC("xdp")
int node_firewall(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	struct node_flow k = {};
	struct firewall_state *f;
	enum counter reason;

	if (!s)
		return XDP_ABORTED;
	k.t = flow_of(&s->packet, s->inward);
	k.slot = s->slot;
	f = bpf_map_lookup_elem(&firewall_states, &k);
	if (f && !(is_closed(f) && opens(&s->packet))) {
		note_packet(s, f);
		return next_function(ctx, s);
	}
	reason = admit(s, &k);
	if (reason == NODE_DROP_FIREWALL_STATE && may_refuse(s))
		return refuse(ctx, s);
	return reason == COUNTERS ? next_function(ctx, s) : verdict(reason, XDP_DROP);
}

/* firewall_expire_one is the callback of sweep_some: it removes a connection that is over. */
static long firewall_expire_one(__u64 i, struct node_sweeping *s)
{
	const struct firewall_state *f;
	struct node_flow k;

	if (!flow_to_expire(s, i, &k))
		return 1;
	f = bpf_map_lookup_elem(&firewall_states, &k);
	if (!f || !is_quiet(f->seen, is_closed(f) ? linger_ns : idle_ns))
		return 0;
	bpf_map_delete_elem(&firewall_states, &k);
	s->removed++;
	return 0;
}

/* sweep_firewall removes those of some connections that are over, as sweep_nat does. */
SEC("xdp")
int sweep_firewall(struct xdp_md *ctx)
{
	return sweep_some(ctx, firewall_expire_one);
}
