/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* steady.h: a shorter way for the most frequent packets: whole segments and datagrams right behind
 * their IP header, of flows with an entry.
 *
 *   read_quick_ip -> recent flow, or its entry -> its node, in VXLAN
 *
 * The facts stay in registers, where the general way (edge.bpf.c) has them in the CPU's scratch. Any
 * other packet takes that way untouched, and so does a packet that is to be sampled. */
#pragma once
#include "core/digest.h"
#include "edge/counters.h"
#include "edge/recent.h"
#include "edge/recover.h"
#include "packet/parse_quick.h"

#define UNDECIDED (-1)

/* A test compares the two ways: then all packets take the general way. */
const volatile bool edge_unsteady = false;

/* send_steady sends the packet at the cursor, of a frame of this type from a side, to its flow's node.
 * UNDECIDED: the packet is as it was, and takes the general way. */
static __always_inline int send_steady(struct xdp_md *ctx, struct cursor c, __be16 type,
				       enum edge_side side)
{
	struct edge_flow *f = NULL;
	struct edge_recent *r;
	struct edge_count *n;
	struct edge_end *e;
	struct tuple sent;
	__u64 word, stamp, now = ticked_ns();
	volatile __u8 family; /* in memory, so that the verifier looks at the rest once */
	struct packet p;
	__u32 class;

	if (edge_unsteady || !read_quick_ip(c, &p, type))
		return UNDECIDED;
	family = p.flags & TCP_SYN ? 0 : p.family;
	if (!family || p.hop_limit <= 1) /* most SYNs begin a flow, and would be searched twice */
		return UNDECIDED;
	p.family = family;
	stamp = edge_stamp(now, side);
	r = edge_recent_at(&p.t);
	if (!r)
		return UNDECIDED;
	if (edge_is_recent(r, &p.t, stamp)) {
		p.hash = r->hash;
		word = r->word;
	} else {
		sent = p.t;
		if (side == SIDE_WORLD)
			reverse(&p.t);
		p.hash = edge_hash(&p);
		f = edge_flow_of(p.hash);
		if (!f || !edge_is_vouched(f, side))
			return UNDECIDED;
		word = READ_ONCE(f->word);
	}
	e = edge_node(word);
	n = edge_count_of(word);
	class = edge_age_class(edge_age(word, now));
	if (!e || !e->ready || !n || !fits_tunnel(&p, e) || class >= EDGE_AGES ||
	    is_sampled(n->packets[class] + 1))
		return UNDECIDED;
	if (f) {
		edge_touch(f);
		*r = (struct edge_recent){ .t = sent, .hash = p.hash, .word = word, .stamp = stamp };
	}
	if (enter_tunnel(ctx, &p, e, p.hash, word & EDGE_INSTANCE,
			 side == SIDE_WORLD ? WAY_INWARD : 0))
		return verdict(EDGE_DROP_NO_HEADROOM, XDP_DROP);
	n->packets[class]++;
	count(EDGE_STEER);
	return bpf_redirect(e->link, 0);
}
