/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sweep.h: the removal of expired entries. */
#pragma once
#include "agent/clock.h"
#include "agent/complete.h"
#include "agent/evict.h"
#include "agent/recount.h"
#include "agent/socket.h"
#include "table/ages.h"

/* is_orphan is true of an entry with a service that is no longer offered, or has another load. */
__noinline bool is_orphan(const struct conn *c)
{
	const struct offering *o;

	if (!c)
		return false;
	o = offering_at(&c->vip, c->vip_port_be, c->protocol);
	return !o || o->index != c->offering;
}

static __always_inline bool conn_expired(const struct conn *c, bool established,
					 const struct sweep *s, __u64 now)
{
	__u64 age = now ? age_of(c, now) : 0;

	if (s->orphans && is_orphan(c))
		return true;
	if (!established)
		return age > EMBRYONIC_NS;
	if (conn_closed(c))
		return age > linger_ns;
	if (age > idle_ns && !(c->flags & CONN_CLOSED) && !may_recover(c))
		return age > tcp_idle_ns;
	return age > idle_ns;
}

struct sweeping {
	struct sweep s;
	struct xdp_md *ctx;
};

/* time_of is the time of a sweep: the daemon may have read its clock long ago. A recount has none. */
static __always_inline __u64 time_of(const struct sweep *s)
{
	return s->now_ns ? larger_of(s->now_ns, now_ns()) : 0;
}

/* has_socket is true of an entry with a connection that the kernel still has. */
__noinline bool has_socket(struct xdp_md *ctx, const struct conn *c)
{
	const struct offering *o = c ? offered_at(c->offering) : NULL;
	struct bpf_sock *sk;
	bool full;

	if (!o || o->owner == OWNER_TABLE || c->protocol != IPPROTO_TCP)
		return false;
	if (virtual_sockets) /* a proof has the agent forget connections that its kernel keeps */
		return false;
	sk = find_socket(ctx, flow_of(c), o);
	if (!sk)
		return false;
	full = is_full_socket(sk->state);
	bpf_sk_release(sk);
	return full;
}

/* outlives is true of a silent connection, which keeps its entry for another while. That of a RST
 * which the stack may have dropped gets an entry with the socket's numbers (adopt.h). */
static __always_inline bool outlives(const struct sweeping *w, struct conn *c, __u64 now)
{
	__u32 flags = c->flags;

	if ((flags & CONN_CLOSED) == CONN_CLOSED || is_orphan(c) || !has_socket(w->ctx, c))
		return false;
	if (flags & CONN_DOUBTED)
		conns_may_lack();
	else
		c->seen = now >> SEEN_SHIFT;
	return !(flags & CONN_DOUBTED);
}

/* sweep_line is the callback of bpf_loop. The load that an entry counted for is taken
 * back. The entry is read again once it is claimed: another CPU may date it only now. */
static long sweep_line(__u64 i, struct sweeping *w)
{
	struct sweep *s = &w->s;
	__u32 at = s->from + i;
	struct conn_line *line = conn_line_at(at);
	__u64 now = time_of(s), was;
	struct conn *c;

	if (!line)
		return 1;
	for (int k = 0; k < SLOTS; k++) {
		was = READ_ONCE(line->fingerprint[k]);
		c = &line->slot[k];
		if (was >= CLAIMED || no_digest(was))
			continue;
		if (!conn_expired(c, was & ESTABLISHED, s, now) || (now && is_of_now(was, now)) ||
		    (was & ESTABLISHED && outlives(w, c, now))) {
			s->kept += was / ESTABLISHED & 1;
			s->unmoved += !recount_request(c);
			continue;
		}
		stall();
		if (!compare_and_swap(&line->fingerprint[k], was, was | CLAIMED))
			continue;
		stall();
		if (!conn_expired(c, was & ESTABLISHED, s, now)) {
			__sync_fetch_and_xor(&line->fingerprint[k], ~was & CLAIMED);
			continue;
		}
		load_on_arrival(c);
		load_on_end(c);
		conn_free(at, line, k, was);
		s->removed += was / ESTABLISHED & 1;
	}
	return 0;
}

/* sweep_conns removes expired entries, and sets the clock; the daemon runs it over some lines
 * at a time. Its frame is struct sweep, never a packet. An XDP program, since a syscall program
 * may sleep, and then Linux 6.1 lets it use no map with a lock. */
SEC("xdp")
int sweep_conns(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct sweep *data = take(&c, sizeof(*data));
	struct sweeping w = { .ctx = ctx };

	if (!data)
		return XDP_ABORTED;
	w.s = *data;
	set_clock();
	bpf_loop(w.s.count, sweep_line, &w, 0);
	c = frame_at(ctx, 0);
	data = take(&c, sizeof(*data));
	if (!data)
		return XDP_ABORTED;
	*data = w.s;
	return XDP_DROP;
}
