/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sweep.h: the removal of expired entries. */
#pragma once
#include "agent/conn.h"

static __always_inline bool conn_expired(const struct conn *c, bool established,
					 const struct sweep *s)
{
	__u64 age = s->now_ns > c->seen_ns ? s->now_ns - c->seen_ns : 0;

	if (!established)
		return age > EMBRYONIC_NS;
	return age > (conn_closed(c) ? s->linger_ns : s->idle_ns);
}

/* sweep_line is the callback of bpf_loop. The load that an entry counted for is taken
 * back. The entry is read again once it is claimed: the flow may have begun again in
 * between, within one unit of its date. */
static long sweep_line(__u64 i, struct sweep *s)
{
	__u32 at = s->from + i;
	struct conn_line *line = conn_line_at(at);
	struct conn *c;
	__u64 was;

	if (!line)
		return 1;
	for (int k = 0; k < SLOTS; k++) {
		was = READ_ONCE(line->fingerprint[k]);
		c = &line->slot[k].c;
		if (was >= CLAIMED || no_digest(was))
			continue;
		if (!conn_expired(c, was & ESTABLISHED, s)) {
			s->kept += was / ESTABLISHED & 1;
			continue;
		}
		stall();
		if (!compare_and_swap(&line->fingerprint[k], was, was | CLAIMED))
			continue;
		if (!conn_expired(c, was & ESTABLISHED, s)) {
			__sync_fetch_and_xor(&line->fingerprint[k], ~was & CLAIMED);
			continue;
		}
		load_on_arrival(c);
		load_on_out(c);
		__sync_fetch_and_and(&line->fingerprint[k], DISPLACED);
		if (was & IN_ALTERNATE)
			conn_uncount_displaced(conn_alternate(at, was));
		s->removed += was / ESTABLISHED & 1;
	}
	return 0;
}

/* sweep_conns removes expired entries; the daemon runs it over some lines at a time. Its
 * frame is struct sweep, never a packet. An XDP program, since a syscall program may sleep,
 * and then Linux 6.1 lets it use no map with a lock. */
SEC("xdp")
int sweep_conns(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct sweep *data = take(&c, sizeof(*data)), s;

	if (!data)
		return XDP_ABORTED;
	s = *data;
	bpf_loop(s.count, sweep_line, &s, 0);
	c = frame_at(ctx, 0);
	data = take(&c, sizeof(*data));
	if (!data)
		return XDP_ABORTED;
	*data = s;
	return XDP_DROP;
}
