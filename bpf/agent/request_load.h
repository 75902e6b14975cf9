/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* request_load.h: the load that a connection is counted for: a request in progress, or
 * pending, from its acceptance to the end of its handshake. */
#pragma once
#include "agent/load.h"

/* set_flag and clear_flag return true if they changed the flag: a counter beside the flag
 * moves exactly once however many CPUs see the cause. */
static __always_inline bool set_flag(struct conn *c, __u32 flag)
{
	return !(__sync_fetch_and_or(&c->flags, flag) & flag);
}

static __always_inline bool clear_flag(struct conn *c, __u32 flag)
{
	return c->flags & flag && __sync_fetch_and_and(&c->flags, ~flag) & flag;
}

/* request_ended: the last payload went outward, or the connection ended. */
static __always_inline void request_ended(struct conn *c)
{
	struct load *l;

	if (!clear_flag(c, CONN_ASKING))
		return;
	l = load_at(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking, -1);
}

/* is_new_payload is true of payload past the last seen, and of any datagram's. */
static __always_inline bool is_new_payload(struct conn *c, const struct packet *p)
{
	__u32 end = p->seq + !!(p->flags & TCP_SYN) + p->payload;
	bool fresh;

	if (p->kind == KIND_UDP)
		return p->payload;
	fresh = p->payload && (__s32)(end - c->next_in) > 0;
	if (p->flags & TCP_FIN)
		end++;
	if ((__s32)(end - c->next_in) > 0 && (p->payload || p->flags & TCP_FIN))
		c->next_in = end;
	return fresh;
}

/* request_began: payload went inward. Only of an established flow, whose removal always
 * takes back the count. */
static __always_inline void request_began(struct conn *c, const struct packet *p)
{
	struct load *l;

	if (!is_new_payload(c, p) || !set_flag(c, CONN_ASKING))
		return;
	l = load_at(c->offering);
	if (l)
		__sync_fetch_and_add(&l->asking, 1);
}

/* pending_ended: the client finished the handshake, its datagram has been answered, or the
 * entry is removed. */
static __always_inline void pending_ended(struct conn *c)
{
	struct load *l;

	if (!clear_flag(c, CONN_PENDING))
		return;
	l = load_at(c->offering);
	if (l)
		pending_remove(l, c->epoch);
}
