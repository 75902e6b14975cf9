/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sweep.h: removes the flows after their time has run out. The daemon runs sweep_flows by
 * BPF_PROG_RUN, some lines at a time, with a struct sweep as the frame. (A syscall program may
 * sleep, and then Linux 6.1 lets it use no map with a lock.) */
#pragma once
#include "lb/evict.h"

/* sweep_flow_line is the callback of bpf_loop. */
static long sweep_flow_line(__u64 i, struct sweep *s)
{
	__u32 line = s->from + i;
	struct line *l = line_at(line);
	__u16 now = seen_now();
	__u64 fp, word;

	if (!l)
		return 1;
	for (int k = 0; k < LINE_SLOTS; k++) {
		word = READ_ONCE(
			l->word[k]); /* before the date, which then is not that of an earlier entry */
		fp = READ_ONCE(l->fingerprint[k]);
		if (!word || word & WORD_MOVING)
			continue;
		if (way_of_spent(word, age_of(fp, now), lifetimes()) != WAY_EXPIRED) {
			s->kept++;
		} else if (compare_and_swap(&l->word[k], word, 0)) {
			free_slot(line, l, k);
			s->removed++;
		}
	}
	return 0;
}

SEC("xdp")
int sweep_flows(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct sweep *data = take(&c, sizeof(*data)), s;

	if (!data)
		return XDP_ABORTED;
	s = *data;
	bpf_loop(s.count, sweep_flow_line, &s, 0);
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	data = take(&c, sizeof(*data));
	if (!data)
		return XDP_ABORTED;
	*data = s;
	return XDP_DROP;
}
