/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* signalled.h: packets for the LB's SIDs: a server's answer, forwarded to the client, and a
 * client's packet that a server gave back, sent to other servers. */
#pragma once
#include "packet/clamp.h"
#include "lb/dispatch.h"
#include "lb/learn.h"
#include "packet/rst.h"

/* The keys of servers, by server number and key id. */
struct signer {
	__u32 server;
	__u32 key_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8 * MAX_SERVERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct signer);
	__type(value, struct key);
} server_keys SEC(".maps");

/* signed_by: the packet carries the tag of that server, or of this LB (NO_SERVER). A function
 * of its own for the verifier. */
__noinline int signed_by(struct xdp_md *ctx, const struct sr *sr, const struct packet *p,
			 __u32 server)
{
	struct scratch *scr = scratch();
	struct signer signer = { .server = server };
	const struct key *key;

	if (!sr || !scr)
		return false;
	signer.key_id = sr->sid.key_id;
	key = server == NO_SERVER ? farm_key(sr->sid.key_id)
				  : bpf_map_lookup_elem(&server_keys, &signer);
	return key && authentic(ctx, sr, p, key, &scr->route);
}

/* send_to_client decapsulates a server's answer and forwards it to the client. */
static __always_inline int send_to_client(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
					  const struct service *svc, const struct next_hop *hop,
					  enum counter reason)
{
	enum rewritten done = strip(ctx, sr, p, OUTWARD);

	if (!done)
		done = dec_hop_limit(ctx, p);
	if (!done)
		done = link_to(ctx, hop->mac, p->family);
	if (done)
		return rewrite_failed(done);
	if (p->kind == KIND_TCP && p->flags & TCP_SYN && clamp_mss(ctx, p, svc->mtu))
		count(LB_MSS_CLAMPED);
	return transmit(reason);
}

/* make_rst turns a server's SYN-ACK into the RST by which its client would refuse it. A
 * function of its own: the caller's chain has no stack left for struct rst. */
__noinline int make_rst(struct xdp_md *ctx, const struct sr *sr, struct packet *p)
{
	struct rst rst = { .flags = TCP_RST };
	enum rewritten done;

	if (!sr || !p)
		return FRAME_TRUNCATED;
	rst.from = p->t.client;
	rst.to = p->t.vip;
	rst.from_port_be = p->t.client_port_be;
	rst.to_port_be = p->t.vip_port_be;
	rst.seq = p->ack;
	rst.label = flow_label(&p->t);
	done = strip(ctx, sr, p, OUTWARD);
	return done ?: write_rst(ctx, p, &rst);
}

/* reject ends the request socket of a server that took a connection after another server: the
 * SYN-ACK does not reach the client, and goes back as the client's RST. */
static __always_inline int reject(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
				  const struct service *svc, __u32 server)
{
	struct destination d = {
		.server = server,
		.function = FN_REJECT,
		.reason = LB_REJECT,
		.generation = bpf_ntohs(sr->sid.generation_be),
	};
	enum rewritten done;

	/* While the entry is embryonic, the client may have received this server's SYN-ACK
	 * through another LB, so the request socket must live. The server repeats its SYN-ACK. */
	if (p->kind != KIND_TCP || !(p->flags & TCP_SYN) ||
	    !(flow_find(p->hash, false) & WORD_ESTABLISHED))
		return verdict(LB_DROP_STICKINESS_CONFLICT, XDP_DROP);
	done = make_rst(ctx, sr, p);
	return done ? rewrite_failed(done) : send_routed(ctx, p, svc, &d);
}

/* forward_answer applies the createStickiness or removeStickiness of a server's answer and
 * forwards the answer. */
static __always_inline int forward_answer(struct xdp_md *ctx, struct scratch *scr,
					  const struct service *svc)
{
	struct packet *p = &scr->packet;
	const struct next_hop *hop;
	enum counter reason;

	if (p->hop_limit <= 1) /* before the signal changes the flow */
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	hop = next_hop_to(&p->t.client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	reason = apply_signal(scr);
	if (reason == LB_STICKINESS_CONFLICT) {
		count(reason);
		return reject(ctx, &scr->sr, p, svc, scr->sender);
	}
	return send_to_client(ctx, &scr->sr, p, svc, hop, reason);
}

/* handle_not_mine sends a client's packet that a server gave back in nm to the other servers:
 * the flow is not that server's, or the server has no listener. They are asked once, and the
 * last one decides. */
static __always_inline int handle_not_mine(struct xdp_md *ctx, const struct sr *sr,
					   struct packet *p, const struct service *svc,
					   __u32 server)
{
	__u16 generation = bpf_ntohs(sr->sid.generation_be);
	struct plan *plan = new_plan(PART_OFFER, LB_OFFER_RETURNED);
	enum rewritten done;

	if (!plan)
		return XDP_ABORTED;
	plan->except = server;
	if (!opens(p) && !(p->kind == KIND_UDP && !generation)) {
		if (remove_stale(p, server, generation))
			count(LB_STALE_REMOVED);
		plan->parts = p->kind == KIND_UDP ? PART_QUESTION | PART_OFFER : PART_QUESTION;
		plan->reason = LB_RECOVER_RETURNED;
	} else {
		plan->generation = generation;
		plan->forced = MAX_CHOICES;
		plan->flags = SID_FINAL;
	}
	done = strip(ctx, sr, p, INWARD);
	return done ? rewrite_failed(done) : send_listed(ctx, p, svc, plan);
}

/* continue_list sends a packet to the servers that its list had no room for. */
static __always_inline int continue_list(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
					 const struct service *svc)
{
	struct plan *plan = new_plan(PART_QUESTION, LB_LIST_CONTINUED);
	enum rewritten done;

	if (!plan)
		return XDP_ABORTED;
	plan->from = bpf_ntohs(sr->sid.report_be) & 0xff;
	plan->rotate = bpf_ntohs(sr->sid.report_be) >> 8;
	plan->generation = bpf_ntohs(sr->sid.generation_be);
	plan->flags = sr->sid.flags;
	if (p->kind == KIND_UDP)
		plan->parts |= PART_OFFER;
	else if (opens(p))
		plan->parts = PART_OFFER;
	done = strip(ctx, sr, p, INWARD);
	return done ? rewrite_failed(done) : send_listed(ctx, p, svc, plan);
}
