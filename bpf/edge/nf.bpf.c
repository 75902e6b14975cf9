// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* nf.bpf.c: a datapath node of EdgeBalance (§3), XDP on its link to the LBs.
 *
 *   question of an LB node: answered by the table of flows
 *   packet in VXLAN   node: read the tunnel -> its core, by a cpumap or on this CPU
 *   at its core       node_core: out of the tunnel -> the chain of its service, by tail calls
 *   through           node_out: changed, or the LB wants it: back to the LB, with the update flag
 *                               else: to its destination, by the kernel's FIB
 *   every other packet to the kernel, untouched
 *
 * These programs are loaded twice where cores are CPUs: as XDP programs, and all but node for a
 * cpumap (the kernel keeps the two kinds apart in arrays of programs). */
#include "edge/answer.h"
#include "edge/forward.h"
#include "edge/function.h"
#include "edge/functions/cost.h"
#include "edge/functions/firewall.h"
#include "edge/functions/ids.h"
#include "edge/functions/nat.h"
#include "edge/functions/rewriter.h"
#include "edge/functions/virtual.h"
#include "edge/functions/user.h"

/* This node; set before loading. */
const volatile __u32 node_cores = 1;
const volatile bool node_spreads = false; /* over CPUs, by node_cpus */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_EDGE_CORES *MAX_EDGE_SERVICES);
	__type(key, __u32);
	__type(value, struct node_count);
} node_counts SEC(".maps");

/* The CPUs of cores. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, MAX_EDGE_CORES);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} node_cpus SEC(".maps");

int node_core(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, int(void *));
} node_programs SEC(".maps") = { .values = { [0] = (void *)&node_core } };

/* is_for_node: the outer header has this node's address, as the sender's end of the tunnel has. */
static __always_inline bool is_for_node(const struct edge_outer *o, const struct edge_end *e)
{
	const __u64 *a = (const void *)&o->to, *b = (const void *)&e->from;

	return a[0] == b[0] && a[1] == b[1];
}

SEC("xdp")
int node(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	struct edge_end *lb;
	enum edge_read how;

	if (!s)
		return XDP_ABORTED;
	how = read_tunnel(ctx, &s->outer);
	if (how == EDGE_NOT_TUNNEL)
		return verdict(NODE_PASS_NOT_TUNNEL, XDP_PASS);
	if (how == EDGE_IN_FRAGMENTS) /* of any UDP: the kernel joins others */
		return lb_of(&s->outer) ? verdict(NODE_DROP_FRAGMENT, XDP_DROP)
					: verdict(NODE_PASS_NOT_TUNNEL, XDP_PASS);
	if (how == EDGE_MALFORMED)
		return verdict(NODE_DROP_MALFORMED_TUNNEL, XDP_DROP);
	lb = lb_of(&s->outer);
	if (!lb || !is_for_node(&s->outer, lb))
		return verdict(NODE_DROP_STRANGER, XDP_DROP);
	if (s->outer.message != MESSAGE_PACKET)
		return answer(ctx, s);
	if (s->outer.vni & EDGE_UPDATE || edge_server(s->outer.vni) != node_server ||
	    edge_core(s->outer.vni) >= node_cores || !chain_of(&s->outer))
		return verdict(NODE_DROP_IMPOSSIBLE_ID, XDP_DROP);
	if (node_spreads)
		return bpf_redirect_map(&node_cpus, edge_core(s->outer.vni), XDP_ABORTED);
	bpf_tail_call(ctx, &node_programs, 0);
	return XDP_ABORTED;
}

static __always_inline void count_packet(const struct node_state *s)
{
	__u32 at = edge_core(s->outer.vni) * MAX_EDGE_SERVICES + edge_service_of(s->outer.vni);
	struct node_count *n = bpf_map_lookup_elem(&node_counts, &at);

	if (!n)
		return;
	n->packets++;
	n->bytes += s->packet.length;
}

SEC("xdp")
int node_core(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	enum rewritten done;
	struct packet *p;

	if (!s)
		return XDP_ABORTED;
	p = &s->packet;
	if (read_tunnel(ctx, &s->outer) != EDGE_READ) /* again, as another CPU may have read it */
		return XDP_ABORTED;
	p->reading = leave_tunnel(ctx, &s->outer, p);
	if (p->reading != READ || !shows_flow(ctx, p))
		return verdict(NODE_DROP_MALFORMED, XDP_DROP);
	done = restore(ctx, &s->outer, p);
	if (done)
		return verdict(NODE_DROP_CONGESTED, XDP_DROP);
	count_packet(s);
	enter_chain(s);
	if (!s->inward && !is_of_clients(p))
		return verdict(NODE_DROP_WRONG_SIDE, XDP_DROP);
	note_flow(s);
	s->changed = 0;
	s->passed = 0;
	return call_function(ctx, s);
}

/* node_out is the end of every chain. */
SEC("xdp")
int node_out(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	struct edge_end *lb;

	if (!s)
		return XDP_ABORTED;
	keep_flow(s);
	if (!s->changed && !(s->outer.way & WAY_RETURNS))
		return forward(ctx, &s->packet, NODE_DIRECT, NODE_PASS_TO_ROUTER,
			       NODE_DROP_LIMIT_NEIGHBOUR);
	lb = lb_of(&s->outer);
	if (!lb || !lb->ready)
		return verdict(NODE_DROP_NO_LB, XDP_DROP);
	if (enter_tunnel(ctx, &s->packet, lb, s->outer.flow, s->outer.vni | EDGE_UPDATE,
			 MESSAGE_PACKET | s->outer.way))
		return verdict(NODE_DROP_NO_HEADROOM, XDP_DROP);
	count(NODE_RETURNED);
	return bpf_redirect(lb->link, 0);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
