/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* recount.h: the requests in progress of each load, and its open sockets, counted again while
 * packets flow.
 *
 *   asking[k] is the number of entries that have its flag: k = 0 CONN_ASKING, 1 CONN_ASKING_ODD
 *
 * A recount lets requests begin in the other count (`counting`), waits until no program uses
 * the name of the old count, moves every entry from the old count to the new count, waits again
 * and sets the old count to 0: a rest in it was an error. An entry that changes meanwhile
 * changes its flags and the counts of these flags, so each count stays as right as it was.
 * Sockets move likewise (agent/load/sockets.h). */
#pragma once
#include "agent/flow.h"

#define MOVE_TRIES 8 /* while other CPUs change the same entry */

/* recount_request moves an entry's request to the count where requests begin. Returns false
 * if the entry changes all the time. A function of its own, as is_orphan: the verifier looks
 * at it once. */
__noinline bool recount_request(struct conn *c)
{
	__u32 to = counting & 1, ours = asking_flag(to), other = asking_flag(!to), was;
	struct load *l;

	for (int i = 0; c && i < MOVE_TRIES; i++) {
		was = READ_ONCE(*flags_word(c));
		if (!(was & other))
			return true;
		stall();
		if (!compare_and_swap(flags_word(c), was, (was & ~other) | ours))
			continue;
		l = load_at(c->offering);
		if (!l)
			return true;
		if (!(was & ours))
			__sync_fetch_and_add(&l->asking[to], 1);
		uncount_asking(l, other);
		return true;
	}
	return false;
}

/* end_load sets a count of a load to 0; the callback of bpf_loop. */
static long end_load(__u64 i, struct load_change *change)
{
	__u32 *asking, *open = open_at(i, change->ended);
	struct load *l = load_at(i);

	if (!l || !open)
		return 1;
	*open = 0;
	asking = change->ended ? &l->asking[1] : &l->asking[0];
	if (*asking) {
		change->wrong++;
		count(AGENT_RECOUNTED);
	}
	*asking = 0;
	return 0;
}

/* end_recount ends a recount; no program counts in the old count any more. Its frame, and
 * that of set_threshold, is struct load_change. */
SEC("xdp")
int end_recount(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct load_change *data = take(&c, sizeof(*data)), change;

	if (!data)
		return XDP_ABORTED;
	change = *data;
	bpf_loop(MAX_OFFERINGS, end_load, &change, 0);
	c = frame_at(ctx, 0);
	data = take(&c, sizeof(*data));
	if (!data)
		return XDP_ABORTED;
	*data = change;
	return XDP_DROP;
}

/* set_threshold sets the threshold of a load and begins a window of offers. */
SEC("xdp")
int set_threshold(struct xdp_md *ctx)
{
	struct cursor c = frame_at(ctx, 0);
	struct load_change *change = take(&c, sizeof(*change));
	__u32 threshold;
	struct load *l;

	if (!change)
		return XDP_ABORTED;
	threshold = change->threshold;
	l = load_at(change->load);
	if (!l)
		return XDP_ABORTED;
	bpf_spin_lock(&l->lock);
	l->threshold = threshold;
	l->attempts = 0;
	l->accepted = 0;
	bpf_spin_unlock(&l->lock);
	return XDP_DROP;
}
