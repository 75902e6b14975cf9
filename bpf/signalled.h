/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* signalled.h: what becomes of a packet that came for one of the LB's SIDs: the
 * server's answer goes on to the client, the client's packet that a server gave
 * back goes on to others. */
#pragma once
#include "clamp.h"
#include "dispatch.h"
#include "learn.h"
#include "rst.h"

/* LB: what each server signs with, by its number and the key's id. */
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

/* signed_by tells whether a packet carries the tag of that server, or of this
 * LB (NOBODY); without keys everybody is believed. */
static __always_inline bool signed_by(struct xdp_md *ctx, const struct sr *sr,
				      const struct packet *p, __u32 server)
{
	struct signer who = { server, sr->sid.key_id };
	const struct key *key;

	if (!signing_key())
		return true;
	key = server == NOBODY ? farm_key(sr->sid.key_id)
			       : bpf_map_lookup_elem(&server_keys, &who);
	return key && authentic(ctx, sr, p, key);
}

/* unwrap takes a server's answer out and sends it to the client. */
static __always_inline int unwrap(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
				  const struct service *svc, const struct next_hop *hop,
				  enum counter why)
{
	enum rewritten done = strip(ctx, sr, p, OUTWARD);

	if (!done)
		done = age(ctx, p, 1, p->class);
	if (!done)
		done = link_to(ctx, hop->mac, p->family);
	if (done)
		return spoilt(done);
	if (p->kind == KIND_TCP && p->flags & TCP_SYN && clamp_mss(ctx, p, svc->mtu))
		count(LB_MSS_CLAMPED);
	return transmit(why);
}

/* reject ends the request of a server that took a connection after another one
 * had: its SYN-ACK never reaches the client, and comes back as the client's RST. */
static __always_inline int reject(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
				  const struct service *svc, __u32 server)
{
	struct order o = {
		.server = server, .function = FN_REJECT, .why = LB_REJECT,
		.generation = bpf_ntohs(sr->sid.generation_be),
	};
	struct rst rst = {
		.from = p->t.client,
		.to = p->t.vip,
		.from_port_be = p->t.client_port_be,
		.to_port_be = p->t.vip_port_be,
		.seq = p->ack,
		.flags = TCP_RST,
		.label = flow_label(&p->t),
	};
	enum rewritten done;

	/* Until the client has acknowledged the other one it may have heard this one
	 * too, by another LB: its request must live. It says so again. */
	if (p->kind != KIND_TCP || !(p->flags & TCP_SYN) || !(find(p->hash, false) & WORD_FLOW))
		return verdict(LB_DROP_STICKINESS_CONFLICT, XDP_DROP);
	done = strip(ctx, sr, p, OUTWARD);
	if (!done)
		done = write_rst(ctx, p, &rst);
	return done ? spoilt(done) : send_to(ctx, p, svc, &o);
}

/* answered is a server's answer that signals createStickiness or removeStickiness. */
static __always_inline int answered(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
				    const struct service *svc, __u32 server, enum function fn)
{
	__u16 generation = bpf_ntohs(sr->sid.generation_be);
	const struct next_hop *hop;
	enum counter why;

	if (p->hops <= 1) /* before it changes anything */
		return verdict(LB_DROP_HOP_LIMIT, XDP_DROP);
	hop = next_hop_to(&p->t.client);
	if (!hop)
		return verdict(LB_DROP_NO_NEXT_HOP, XDP_DROP);
	/* A RST is no word of a connection that lives, whatever its server waits for. */
	why = fn == FN_CREATE_STICKINESS && !(p->flags & TCP_RST) ? learn(p, server, generation)
								  : forget(p, server, generation);
	if (why == LB_STICKINESS_CONFLICT) {
		count(why);
		return reject(ctx, sr, p, svc, server);
	}
	return unwrap(ctx, sr, p, svc, hop, why);
}

/* given_back is a client's packet that a server does not want: the flow is not
 * its own, or it has no listener for a new one. The others are asked, once: the
 * last of them decides. */
static __always_inline int given_back(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
				      const struct service *svc, __u32 server)
{
	__u16 generation = bpf_ntohs(sr->sid.generation_be);
	struct plan plan = {
		.first = NOBODY, .except = server, .generation = generation,
		.laps = LAP_OFFER, .forced = MAX_CHOICES, .flags = SID_FINAL,
		.why = LB_OFFER_RETURNED,
	};
	enum rewritten done;

	if (!opens(p) && !(p->kind == KIND_UDP && !generation)) {
		if (disown(p, server, generation))
			count(LB_STALE_REMOVED);
		plan.laps = LAP_QUESTION;
		if (p->kind == KIND_UDP)
			plan.laps |= LAP_OFFER;
		plan.generation = plan.flags = plan.forced = 0;
		plan.why = LB_RECOVER_RETURNED;
	}
	done = strip(ctx, sr, p, INWARD);
	return done ? spoilt(done) : send_listed(ctx, p, svc, &plan);
}

/* go_on sends a packet to the rest of its list. */
static __always_inline int go_on(struct xdp_md *ctx, const struct sr *sr, struct packet *p,
				 const struct service *svc)
{
	struct plan plan = {
		.first = NOBODY, .except = NOBODY,
		.from = bpf_ntohs(sr->sid.report_be) & 0xff,
		.rotate = bpf_ntohs(sr->sid.report_be) >> 8,
		.generation = bpf_ntohs(sr->sid.generation_be),
		.flags = sr->sid.flags,
		.why = LB_LIST_CONTINUED,
	};
	enum rewritten done = strip(ctx, sr, p, INWARD);

	plan.laps = opens(p) ? LAP_OFFER : p->kind == KIND_UDP ? LAP_QUESTION | LAP_OFFER : LAP_QUESTION;
	return done ? spoilt(done) : send_listed(ctx, p, svc, &plan);
}
