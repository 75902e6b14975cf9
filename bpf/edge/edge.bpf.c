// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* edge.bpf.c: the load balancer of EdgeBalance (§3), XDP on the links to the client network, to
 * the world and to the nodes.
 *
 *   packet of a flow         edge_clients, edge_world: parse -> flow -> its node, in VXLAN
 *   … without an entry       tail call of edge_new: prefix -> service -> instance by weight -> entry
 *   … of a node that is gone tail call of edge_new: another instance
 *   changed packet of a node edge_back: tunnel -> flow -> learn the tuple after the change
 *                            -> its destination, by the kernel's FIB
 *   every other packet       to the kernel, untouched */
#include "core/digest.h"
#include "edge/counters.h"
#include "edge/forward.h"
#include "edge/instances.h"
#include "edge/tunnel.h"

enum edge_side {
	SIDE_CLIENTS,
	SIDE_WORLD,
	SIDES
};

/* A packet on its way through the programs of a CPU. */
struct edge_scratch {
	struct packet packet;
	struct edge_outer outer;
	__u32 side; /* enum edge_side, of the link that the packet came by */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct edge_scratch);
} edge_scratch_of_cpu SEC(".maps");

/* The link addresses of the two sides, as they begin a frame; set before loading. */
const volatile __u64 edge_macs[SIDES] = {};

int edge_new(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, int(void *));
} edge_programs SEC(".maps") = { .values = { [0] = (void *)&edge_new } };

static __always_inline struct edge_scratch *edge_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&edge_scratch_of_cpu, &zero);
}

/* send_to_node sends the packet to the flow's node. */
static __always_inline int send_to_node(struct xdp_md *ctx, struct packet *p, __u64 word)
{
	struct edge_count *n = edge_count_of(word);
	struct edge_end *e = edge_node(word);
	enum rewritten done;

	if (!e || !n)
		return XDP_ABORTED;
	if (p->length + sizeof(struct ipv6hdr) + sizeof(struct edge_vxlan) > e->mtu)
		return verdict(EDGE_DROP_TOO_BIG, XDP_DROP);
	done = enter_tunnel(ctx, p, e, p->hash, word & EDGE_INSTANCE);
	if (done)
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	edge_count_packet(n, word);
	count(EDGE_STEER);
	return bpf_redirect(e->link, 0);
}

/* from_side handles a frame of one of the two networks. */
static __always_inline int from_side(struct xdp_md *ctx, enum edge_side side)
{
	struct edge_scratch *s = edge_scratch();
	struct cursor c = frame_at(ctx, 0);
	struct ethhdr *eth = take(&c, sizeof(*eth));
	struct edge_flow *f;
	struct packet *p;
	__u64 word;

	if (!s)
		return XDP_ABORTED;
	if (!eth || (eth->h_proto != bpf_htons(ETH_P_IP) && eth->h_proto != bpf_htons(ETH_P_IPV6)))
		return verdict(EDGE_PASS_NOT_IP, XDP_PASS);
	if ((*(__u64 *)eth ^ edge_macs[side]) & LINK_ADDRESS)
		return verdict(EDGE_PASS_OTHER_HOST, XDP_PASS);
	p = &s->packet;
	s->side = side;
	p->reading = read_at(c.pos - sizeof(*eth), c.end, ETH_BYTES, p,
			     side == SIDE_CLIENTS ? INWARD : OUTWARD);
	if (p->reading == NOT_IP)
		return verdict(EDGE_PASS_NOT_IP, XDP_PASS);
	if (p->reading == READ && shows_flow(ctx, p)) {
		struct tuple t = p->t;

		symmetric(&t);
		p->hash = digest(&t);
		f = edge_flow_of(p->hash);
		word = f ? READ_ONCE(f->word) : 0;
		if (f && edge_is_ready(word)) {
			edge_touch(f);
			return send_to_node(ctx, p, word);
		}
	}
	bpf_tail_call(ctx, &edge_programs, 0);
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

/* begin makes a flow's entry, or gives one of a node that is gone another instance: the flow's
 * beginning stays. */
static __always_inline int begin(struct xdp_md *ctx, struct packet *p, __u32 service)
{
	__u64 word = edge_choose(service), was;
	struct edge_flow *f = edge_flow_of(p->hash);
	struct edge_count *n = edge_count_of(word);

	if (!word || !n)
		return verdict(EDGE_DROP_NO_INSTANCE, XDP_DROP);
	was = f ? READ_ONCE(f->word) : 0;
	word |= f ? was >> EDGE_BEGUN_SHIFT << EDGE_BEGUN_SHIFT : edge_begun();
	if (!f)
		f = edge_insert(p->hash, word, 0);
	if (!f)
		return verdict(EDGE_DROP_TABLE_FULL, XDP_DROP);
	if (was && !edge_is_ready(was) && compare_and_swap(&f->word, was, word))
		count(EDGE_FLOW_MOVED);
	else if (!was)
		count(EDGE_FLOW_BEGUN);
	n->flows++;
	return send_to_node(ctx, p, READ_ONCE(f->word)); /* another CPU may have been first */
}

/* unfit is the reason to drop a packet of the edge's prefixes that shows no flow, or COUNTERS. */
static __always_inline enum counter unfit(struct xdp_md *ctx, struct packet *p)
{
	if (p->kind == KIND_FRAGMENT)
		return EDGE_DROP_FRAGMENT;
	if (p->reading != READ)
		return EDGE_DROP_MALFORMED;
	return shows_flow(ctx, p) ? COUNTERS : EDGE_DROP_PROTOCOL;
}

/* edge_new handles the packets without an entry. p->t has the client network's end first. */
SEC("xdp")
int edge_new(struct xdp_md *ctx)
{
	struct edge_scratch *s = edge_scratch();
	struct in6_addr *own;
	enum counter reason;
	struct packet *p;
	int service;

	if (!s)
		return XDP_ABORTED;
	p = &s->packet;
	own = s->side == SIDE_WORLD ? &p->t.client : &p->t.vip; /* the destination */
	if (bpf_map_lookup_elem(&edge_own, own))
		return verdict(EDGE_PASS_OWN_ADDRESS, XDP_PASS);
	service = edge_service_at(&p->t.client);
	if (service < 0)
		return verdict(EDGE_PASS_NOT_EDGE, XDP_PASS);
	reason = unfit(ctx, p);
	if (reason != COUNTERS)
		return verdict(reason, XDP_DROP);
	if (!service)
		return verdict(EDGE_DROP_UNSOLICITED, XDP_DROP);
	return begin(ctx, p, service);
}

/* stranger is the reason to drop a packet that no node of ours sent, or none for this flow, or
 * COUNTERS. */
static __always_inline enum counter stranger(const struct edge_outer *o)
{
	__u32 server = edge_server(o->vni), service = edge_service_of(o->vni), *number;
	struct edge_end *e = edge_node(o->vni);
	struct in6_addr from = o->from;
	struct edge_service *svc;

	number = bpf_map_lookup_elem(&edge_senders, &from);
	if (!number || *number != server)
		return EDGE_DROP_STRANGER;
	svc = bpf_map_lookup_elem(&edge_services, &service);
	if (!e || edge_core(o->vni) >= e->cores || !svc || !svc->first)
		return EDGE_DROP_IMPOSSIBLE_ID;
	return o->vni & EDGE_UPDATE ? COUNTERS : EDGE_DROP_NO_UPDATE;
}

static __always_inline bool same_instance(const struct edge_flow *f, __u64 word)
{
	return !((READ_ONCE(f->word) ^ word) & EDGE_INSTANCE);
}

/* learn gives the tuple after the change, p->hash, the instance of the tuple before. */
static __always_inline enum counter learn(const struct packet *p, const struct edge_outer *o)
{
	struct edge_flow *before = edge_flow_of(o->flow), *after;
	__u64 word;

	if (!before)
		return EDGE_DROP_UNKNOWN_FLOW;
	word = READ_ONCE(before->word);
	if ((word ^ o->vni) & EDGE_INSTANCE)
		return EDGE_DROP_WRONG_INSTANCE;
	edge_touch(before);
	if (p->hash == o->flow)
		return EDGE_UPDATE_KNOWN;
	after = edge_flow_of(p->hash);
	if (after) {
		edge_touch(after);
		return same_instance(after, word) ? EDGE_UPDATE_KNOWN : EDGE_DROP_CONFLICT;
	}
	after = edge_insert(p->hash, word, o->flow);
	if (!after)
		return EDGE_DROP_TABLE_FULL;
	before->partner = p->hash;
	return same_instance(after, word) ? EDGE_UPDATE_LEARNED : EDGE_DROP_CONFLICT;
}

/* updated handles a packet out of its tunnel. */
static __always_inline int updated(struct xdp_md *ctx, struct edge_scratch *s)
{
	struct packet *p = &s->packet;
	enum counter reason;
	struct tuple t;

	p->reading = leave_tunnel(ctx, &s->outer, p);
	if (p->kind == KIND_FRAGMENT)
		return verdict(EDGE_DROP_FRAGMENT, XDP_DROP);
	if (p->reading != READ || !shows_flow(ctx, p))
		return verdict(EDGE_DROP_MALFORMED, XDP_DROP);
	t = p->t;
	symmetric(&t);
	p->hash = digest(&t);
	reason = learn(p, &s->outer);
	if (reason != EDGE_UPDATE_LEARNED && reason != EDGE_UPDATE_KNOWN)
		return verdict(reason, XDP_DROP);
	if (restore(ctx, &s->outer, p))
		return verdict(EDGE_DROP_CONGESTED, XDP_DROP);
	return forward(ctx, p, reason, EDGE_PASS_TO_ROUTER);
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
	return updated(ctx, s);
}

/* Keeps the frame's layout in the object's BTF. */
const struct edge_expiry *const volatile edge_expiry_layout = NULL;

/* The argument of expire_one. */
struct edge_sweeping {
	struct xdp_md *ctx;
	__u32 removed;
	__u32 zero;
};

/* expire_one is the callback of bpf_loop. */
static long expire_one(__u64 i, struct edge_sweeping *s)
{
	__u64 hash;

	if (i >= MAX_EXPIRING ||
	    bpf_xdp_load_bytes(s->ctx,
			       __builtin_offsetof(struct edge_expiry, hash) + i * sizeof(hash),
			       &hash, sizeof(hash)))
		return 1;
	s->removed += edge_expire(hash);
	return 0;
}

/* sweep_edge removes those of some flows that are idle. The daemon looks for them, and runs it by
 * BPF_PROG_RUN on each CPU, with a struct edge_expiry as the frame. */
SEC("xdp")
int sweep_edge(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct edge_sweeping s = { .ctx = ctx };
	struct edge_expiry *e = c.pos;

	if ((void *)(&e->removed + 1) > c.end)
		return XDP_ABORTED;
	bpf_loop(e->count, expire_one, &s, 0);
	e = (void *)(long)ctx->data;
	if ((void *)(&e->removed + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	e->now = ticked_ns();
	e->removed = s.removed;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
