/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* give_back.h: the packets that this server does not take, and that go to no next candidate: it
 * refuses them with a RST, or gives them back to the LB. A program of its own, as they are rare. */
#pragma once
#include "core/limit.h"
#include "packet/bare_segment.h"
#include "packet/scratch.h"
#include "agent/act.h"

/* reset_for is the RST for a SYN; it acknowledges the SYN and its payload (RFC 9293
 * §3.10.7.1). */
static __always_inline struct segment reset_for(const struct packet *p)
{
	return (struct segment){
		.from = p->t.vip,
		.to = p->t.client,
		.from_port_be = p->t.vip_port_be,
		.to_port_be = p->t.client_port_be,
		.ack = p->seq + 1 + p->payload,
		.flags = TCP_RST | TCP_ACK,
		.label = flow_label(&p->t),
	};
}

/* refuse sends the RST of a last candidate with a full accept queue. Linux would drop the SYN in
 * silence, even with tcp_abort_on_overflow. A function of its own to keep the stack small; its
 * arguments are never NULL, but the verifier wants proof. */
__noinline int refuse(struct xdp_md *ctx, const struct sr *sr, struct packet *p)
{
	const struct offering *o = p ? offering_of(p) : NULL;
	const struct next_hop *hop;
	enum rewritten done;
	struct segment rst;

	if (!sr || !p)
		return XDP_ABORTED;
	if (o && o->on_full == FULL_DROP)
		return verdict(AGENT_REFUSE_FULL_DROP, XDP_DROP);
	if (!may_tell(LIMIT_REFUSAL, &p->t.client, o ? o->index : 0))
		return verdict(AGENT_DROP_LIMIT_REFUSAL, XDP_DROP);
	hop = next_hop_to(&p->t.client);
	if (!hop)
		return verdict(AGENT_DROP_NO_NEXT_HOP, XDP_DROP);
	rst = reset_for(p);
	done = strip(ctx, sr, p, INWARD);
	if (!done)
		done = write_segment(ctx, p, &rst, NULL);
	if (!done)
		done = link_to(ctx, hop->mac, p->family);
	return done ? cannot_rewrite(done) : transmit(AGENT_REFUSE_FULL_RESET);
}

/* encapsulate_in puts the packet into [to]. A function of its own, as refuse is. */
__noinline int encapsulate_in(struct xdp_md *ctx, const struct packet *p, const struct sid *to,
			      const struct key *key, const struct next_hop *hop)
{
	if (!p || !to || !hop)
		return FRAME_TRUNCATED;
	return add_outer(ctx, p, 0, key ? tag_of_one(key, &p->t, to) : UNTAGGED, to, hop->mac,
			 protocol_inside(p));
}

/* give_back returns the packet in [lb::nm]: the LB removes its entry of the flow, or
 * offers the flow to other servers, or learns that the flow is alive. */
static __always_inline int give_back(struct xdp_md *ctx, struct scratch *scr)
{
	struct sid to =
		make_sid(scr->sr.sender_be, FN_NOT_MINE, bpf_ntohs(scr->sr.sid.generation_be));
	const struct signal_key *k = signing_key();
	const struct next_hop *hop;
	enum rewritten done;
	struct in6_addr lb;

	if (k)
		to.key_id = k->id;
	if (scr->outcome == AGENT_GIVE_BACK_LIVE)
		to.flags = SID_HELD;
	lb = sid_address(&to);
	hop = next_hop_to(&lb);
	if (!hop)
		return verdict(AGENT_DROP_NO_NEXT_HOP, XDP_DROP);
	done = strip(ctx, &scr->sr, &scr->packet, INWARD);
	if (!done)
		done = encapsulate_in(ctx, &scr->packet, &to, k ? &k->key : NULL, hop);
	return done ? cannot_rewrite(done) : transmit(scr->outcome);
}

/* agent_return has the packets that agent_in read and does not take: scratch has each with its
 * outcome. */
SEC("xdp.frags")
int agent_return(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();

	if (!scr)
		return XDP_ABORTED;
	if (scr->outcome == AGENT_REFUSE_FULL_RESET)
		return refuse(ctx, &scr->sr, &scr->packet);
	return give_back(ctx, scr);
}

/* The program that a packet may go on to, by a tail call. The kernel empties an array of programs
 * that no process and no pin holds, so it is pinned while agent_in is attached. */
enum {
	RETURN_PROGRAM,
	PROGRAMS
};

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, PROGRAMS);
	__type(key, __u32);
	__array(values, int(void *));
} programs SEC(".maps") = { .values = { [RETURN_PROGRAM] = (void *)&agent_return } };

/* to_return sends the packet on to agent_return. */
static __always_inline int to_return(struct xdp_md *ctx, struct scratch *scr, enum counter why)
{
	scr->outcome = why;
	bpf_tail_call(ctx, &programs, RETURN_PROGRAM);
	return XDP_ABORTED; /* the array is empty: user space let go of it */
}
