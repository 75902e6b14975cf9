/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* learn.h: what servers tell the LB (6LB Table II), and what that changes. */
#pragma once
#include "count.h"
#include "flow.h"

/* replaces tells whether a server may take over an entry of another generation:
 * the old connection is over, or its server says so itself, or the client began
 * anew here. Anything else is a late duplicate. */
static __always_inline bool replaces(const struct flow *f, __u32 server, __u16 generation)
{
	return flow_over(f) || f->server == server || f->announced == generation;
}

/* learn is createStickiness. Within one generation the first server stays. */
static __always_inline enum counter learn(const struct packet *p, __u32 server, __u16 generation)
{
	bool handshake = p->kind == KIND_UDP || (p->kind == KIND_TCP && p->flags & TCP_SYN);
	struct flow *f = flow_find(&p->t);
	struct embryo *e;

	if (f && f->generation == generation) {
		flow_touch(f, now_ns());
		return f->server == server ? LB_STICKINESS_REPEATED : LB_STICKINESS_CONFLICT;
	}
	if (f && !replaces(f, server, generation))
		return LB_CREATE_OLD_GENERATION;
	e = f ? NULL : embryo_find(&p->t);
	if (e && e->generation == generation && e->server != server && handshake)
		return LB_STICKINESS_CONFLICT;
	if (!handshake) { /* the client has acknowledged this one, whoever came first */
		bpf_map_delete_elem(&embryos, &p->t);
		return flow_write(&p->t, server, generation) ? LB_STICKINESS_RECOVERED
							     : LB_TABLE_FULL;
	}
	if (e && e->generation == generation && p->kind == KIND_UDP) {
		e->seen_ns = now_ns();
		return LB_STICKINESS_REPEATED;
	}
	if (f) /* its successor starts as an embryo, too */
		bpf_map_delete_elem(&flows, &p->t);
	embryo_write(p, server, generation);
	return e && e->generation == generation ? LB_STICKINESS_REPEATED : LB_STICKINESS_CREATED;
}

/* forget is removeStickiness. */
static __always_inline enum counter forget(const struct packet *p, __u32 server, __u16 generation)
{
	struct flow *f = flow_find(&p->t);
	struct embryo *e;

	if (!f) {
		e = embryo_find(&p->t);
		if (!e || e->generation != generation || e->server != server)
			return LB_REMOVE_UNKNOWN;
		bpf_map_delete_elem(&embryos, &p->t);
		return LB_STICKINESS_REMOVED;
	}
	if (f->generation != generation || f->server != server)
		return LB_REMOVE_OLD_GENERATION;
	flow_touch(f, now_ns());
	flow_close(f, p->flags & TCP_RST ? CLOSED_RESET : CLOSED_SERVER);
	return LB_STICKINESS_REMOVED;
}

/* disown is notMine: an entry that names this server for this generation is
 * stale. */
static __always_inline bool disown(const struct packet *p, __u32 server, __u16 generation)
{
	struct flow *f = flow_find(&p->t);
	struct embryo *e = embryo_find(&p->t);
	bool stale = false;

	if (f && f->server == server && f->generation == generation)
		stale = !bpf_map_delete_elem(&flows, &p->t);
	if (e && e->server == server && e->generation == generation)
		stale |= !bpf_map_delete_elem(&embryos, &p->t);
	return stale;
}
