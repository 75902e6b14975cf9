/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* from_server.h: packets for the LB's SIDs: a server's answer, forwarded to the client, and a
 * client's packet that a server gave back, sent to other servers. */
#pragma once
#include "packet/clamp.h"
#include "lb/dispatch.h"
#include "lb/signals.h"
#include "packet/bare_segment.h"
#include "packet/suspects.h"

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
	if (key && authentic(ctx, sr, p, key, &scr->route))
		return true;
	note_suspect(sr->sender_be);
	return false;
}

/* The arguments of is_member. */
struct membership {
	const struct crowd *crowd;
	__u32 server;
	bool found;
};

/* is_member is the callback of bpf_loop; 1 ends it. */
static long is_member(__u64 i, struct membership *m)
{
	m->found = crowd_member(m->crowd, i) == m->server;
	return m->found;
}

/* is_asked: a question about the flow goes to that server. A function of its own for the
 * verifier. */
__noinline int is_asked(const struct packet *p, const struct service *svc, __u32 server)
{
	struct membership m = { .crowd = crowd_of_cpu(), .server = server };
	__u64 bucket = bucket_of(p, svc);
	__u32 members = members_of(bucket), named;

	named = members > NAMED_MEMBERS ? FIRST_MEMBERS : members;
	for (__u32 i = 0; i < NAMED_MEMBERS; i++)
		if (i < named && named_member(bucket, i) == server)
			return true;
	if (m.crowd && members > NAMED_MEMBERS)
		bpf_loop(gather(p, svc), is_member, &m, 0);
	return m.found;
}

/* may_signal: the sender may have the flow: the word of the flow's entry names that server, which
 * may be draining, or it is a server that is asked. This LB (NO_SERVER) may. */
static __always_inline bool may_signal(const struct packet *p, const struct service *svc,
				       __u32 sender, __u64 word)
{
	return sender == NO_SERVER || (word && server_in_word(word) == sender) ||
	       is_asked(p, svc, sender);
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

/* make_rst turns a server's SYN-ACK into the RST that its client would refuse it with. A
 * function of its own: the caller's chain has no stack left for struct segment. */
__noinline int make_rst(struct xdp_md *ctx, const struct sr *sr, struct packet *p)
{
	struct segment rst = { .flags = TCP_RST };
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
	return done ?: write_segment(ctx, p, &rst, NULL);
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

/* answered_again remembers the server that took a client's connection; true if the client had others there, so that it
 * was asked first. */
static __always_inline bool answered_again(const struct packet *p, const struct service *svc,
					   __u32 server)
{
	__u64 known = bucket_of_client(p, svc);

	remember_client(p, svc, server, 0);
	return known && named_member(known, 0) == server;
}

/* note_answer counts the answer of a server to a new connection, after its signal had the outcome
 * `reason`. If the connection was offered to another server first, that server answered, too, as it
 * passed the offer on; unless the SYN had come so often that the list was rotated. A function of its
 * own for the verifier. */
__noinline int note_answer(const struct service *svc, __u32 reason)
{
	const struct scratch *scr = scratch();
	const struct packet *p;
	__u32 first;

	if (!scr || !svc || reason != LB_STICKINESS_CREATED)
		return 0;
	p = &scr->packet;
	note_answered(scr->sender);
	if (svc->affinity && answered_again(p, svc, scr->sender))
		return 0;
	first = named_member(bucket_of(p, svc), 0);
	if (first != scr->sender && times_seen(p->hash, p->ack - 1) - 1 < ROTATED_FROM)
		note_answered(first);
	return 0;
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
	reason = apply_signal();
	note_answer(svc, reason);
	if (reason == TRY_AGAIN) /* its server repeats the packet, and with it the signal */
		return verdict(LB_DROP_CONTENDED, XDP_DROP);
	if (reason == LB_DROP_NOT_RELEASED)
		return verdict(reason, XDP_DROP);
	if (reason == LB_STICKINESS_CONFLICT) {
		count(reason);
		return reject(ctx, &scr->sr, p, svc, scr->sender);
	}
	return send_to_client(ctx, &scr->sr, p, svc, hop, reason);
}

/* challenge sends a SYN back to the server with the live connection of its five-tuple: the stack
 * there answers by a challenge ACK (RFC 9293 §3.10.7.4). */
static __always_inline int challenge(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
				     const struct service *svc, __u32 server)
{
	struct destination d = {
		.server = server,
		.function = FN_CONNECT_FORCE,
		.reason = LB_OFFER_CHALLENGE,
		.generation = bpf_ntohs(sr->sid.generation_be),
	};
	enum rewritten done;

	report_alive(p, server);
	done = strip(ctx, sr, p, INWARD);
	return done ? rewrite_failed(done) : send_routed(ctx, p, svc, &d);
}

/* plan_returned fills the plan of a packet that a server gave back, which removed a stale entry or
 * not. An offer that no server took is final; the SYN of a flow that its server released is as
 * new. */
static __always_inline void plan_returned(struct plan *plan, const struct packet *p,
					  __u16 generation, bool removed)
{
	if (!opens(p) && !(p->kind == KIND_UDP && !generation)) {
		plan->parts = p->kind == KIND_UDP ? PART_QUESTION | PART_OFFER : PART_QUESTION;
		plan->reason = LB_RECOVER_RETURNED;
		plan->limit = limit_of(p, 1);
		return;
	}
	plan->generation = generation;
	if (removed)
		return;
	plan->forced = MAX_CHOICES;
	plan->flags = SID_FINAL;
}

/* handle_not_mine sends a client's packet that a server gave back in nm to the other servers:
 * the flow is not that server's, or the server has no listener. They are asked once, and the
 * last one decides. */
static __always_inline int handle_not_mine(struct xdp_md *ctx, struct scratch *scr,
					   const struct service *svc)
{
	struct plan *plan = new_plan(PART_OFFER, LB_OFFER_RETURNED);
	__u16 generation = bpf_ntohs(scr->sr.sid.generation_be);
	const struct sr *sr = &scr->sr;
	struct packet *p = &scr->packet;
	__u32 stale = LB_REMOVE_UNKNOWN;
	enum rewritten done;

	if (!plan)
		return XDP_ABORTED;
	if (sr->sid.flags & SID_HELD && opens(p))
		return challenge(ctx, sr, p, svc, scr->sender);
	if (opens(p) || p->kind != KIND_UDP || generation)
		stale = remove_stale(p->hash, scr->word, scr->sender, generation, opens(p));
	if (stale == TRY_AGAIN) /* the client repeats the packet */
		return verdict(LB_DROP_CONTENDED, XDP_DROP);
	if (stale == LB_STALE_REMOVED)
		count(LB_STALE_REMOVED);
	plan->except = scr->sender;
	plan_returned(plan, p, generation, stale == LB_STALE_REMOVED);
	done = strip(ctx, sr, p, INWARD);
	return done ? rewrite_failed(done) : TO_LIST;
}

/* is_check: user space made the packet, to see whether a server is alive. */
static __always_inline bool is_check(const struct sr *sr)
{
	return sr->sid.function_be == bpf_htons(FN_RECOVER_STICKINESS) &&
	       sr->sid.report_be == bpf_htons(POSITION_CHECK);
}

/* continue_list sends a packet to the servers that its list had no room for. */
static __always_inline int continue_list(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
					 const struct service *svc)
{
	struct plan *plan = new_plan(PART_QUESTION, LB_LIST_CONTINUED);
	enum rewritten done;

	if (!plan)
		return XDP_ABORTED;
	if (is_check(sr)) {
		note_alive(bpf_ntohs(sr->sid.generation_be));
		return verdict(LB_CHECK_ANSWERED, XDP_DROP);
	}
	plan->from = bpf_ntohs(sr->sid.report_be) & 0xff;
	plan->rotate = bpf_ntohs(sr->sid.report_be) >> 8;
	plan->generation = bpf_ntohs(sr->sid.generation_be);
	plan->flags = sr->sid.flags;
	plan->limit = limit_of(p, plan->rotate);
	if (p->kind == KIND_UDP)
		plan->parts |= PART_OFFER;
	else if (opens(p))
		plan->parts = PART_OFFER;
	done = strip(ctx, sr, p, INWARD);
	return done ? rewrite_failed(done) : TO_LIST;
}

/* For an action: the packet came back, and goes on to other servers. */
#define TO_RETURNED (-3)

/* send_on sends this CPU's packet, which came back in a signal, to other servers. */
static __always_inline int send_on(struct xdp_md *ctx)
{
	struct scratch *scr = scratch();
	const struct service *svc = scr ? service_of(&scr->packet) : NULL;

	if (!svc) /* removed meanwhile */
		return verdict(LB_DROP_NO_SERVER, XDP_DROP);
	if (scr->sr.sid.function_be == bpf_htons(FN_NOT_MINE))
		return handle_not_mine(ctx, scr, svc);
	return continue_list(ctx, &scr->sr, &scr->packet, svc);
}
