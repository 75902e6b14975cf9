/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* ownership.h: whether this server owns a flow, by its entry or by the kernel's sockets, and
 * when an entry becomes established. */
#pragma once
#include "agent/complete.h"
#include "agent/owner.h"
#include "agent/request.h"

/* owned_by_table is true of flows with sockets out of sight: the agent's entry is then the
 * only evidence of ownership. */
static __always_inline bool owned_by_table(const struct request *r)
{
	return r->o->owner == OWNER_TABLE || r->p->t.protocol == IPPROTO_UDP;
}

/* find_holding finds whether this server owns the flow. The kernel accepts the SYN cookie
 * of any server, so a cookie counts only if this agent accepted the offer. */
static __always_inline void find_holding(struct xdp_md *ctx, const struct request *r,
					 const struct conn_entry *e, struct holding *held)
{
	if (owned_by_table(r)) {
		*held = (struct holding){ .mine = e->c, .generation = e->c ? e->c->generation : 0 };
		return;
	}
	find_owner(ctx, r->p, r->o, held);
	if (held->cookie && e->c && e->embryonic)
		held->mine = e->c->generation == held->generation;
}

/* establishes is true of a packet that a spoofed source cannot send: an acknowledgement,
 * or a UDP datagram after the server's response. */
static __always_inline bool establishes(const struct packet *p, const struct conn_entry *e)
{
	if (p->kind == KIND_UDP)
		return e->c && !(e->c->flags & CONN_PENDING);
	return p->kind == KIND_TCP && (p->flags & (TCP_ACK | TCP_SYN | TCP_RST)) == TCP_ACK;
}

/* establish makes a flow that this server owns established, if the packet proves its
 * client. Returns its entry; none if there is no room, or another flow has just
 * taken the slot. */
static __always_inline struct conn_entry establish(const struct request *r, struct conn_entry e,
						   __u16 generation, __u64 now)
{
	struct conn *c;

	if ((e.c && !e.embryonic) || !establishes(r->p, &e))
		return e;
	c = e.c ? conn_establish(r->p, &e)
		: conn_adopt(r->p, r->o, r->sr->sender_be, generation, now, e.at);
	if (!c)
		conns_may_lack();
	return (struct conn_entry){ .c = c };
}
