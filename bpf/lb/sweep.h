/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sweep.h: removes the flows after their time has run out, and ages those that learn. The daemon runs sweep_flows by
 * BPF_PROG_RUN, some lines at a time, with a struct sweep as the frame. (A syscall program may
 * sleep, and then Linux 6.1 lets it use no map with a lock.) */
#pragma once
#include "lb/earlier_table.h"

/* Start of a flow that learns after which its duration is not known: its date wraps after 275 s. */
#define OLD_DATES 0xe000

/* aged returns the word of a flow that learns after some time without packets: it is silent, or too
 * old for a duration, or counts by the colour of now. */
static __always_inline __u64 aged(const struct sweep *s, __u64 word, __u16 age)
{
	const struct tally *t = tally_at(tally_in_word(word));
	__u16 start = start_in_word(word);

	if (t && word & WORD_COUNTED && t->silent && age >= t->silent)
		word = (word & ~WORD_COUNTED) | WORD_SILENT;
	if (start && (__u16)(date_now() - start) >= OLD_DATES)
		word = started(word, 0);
	if (t && s->recolour)
		word = coloured(word, t->colour);
	return word;
}

/* age_word ages a flow that learns. The entry keeps its date. */
static __always_inline void age_word(struct sweep *s, struct line *l, __u32 i, __u64 word,
				     __u16 age)
{
	__u64 fresh = aged(s, word, age);

	if (fresh == word || !compare_and_swap(&l->word[i & (LINE_SLOTS - 1)], word, fresh))
		return;
	if ((word ^ fresh) & WORD_COLOUR) {
		tally_add(fresh, share_of(fresh));
		tally_add(word, -share_of(word));
		s->recoloured++;
	} else {
		tally_change(word, fresh);
	}
}

/* sweep_slots sweeps a line of the table, or of that of before. */
static __always_inline long sweep_slots(struct sweep *s, __u32 line, struct line *l, bool earlier)
{
	__u16 now = seen_now(), age;
	__u64 fp, word;

	if (!l)
		return 1;
	for (int k = 0; k < LINE_SLOTS; k++) {
		word = READ_ONCE(
			l->word[k]); /* before the date, which then is not that of an earlier entry */
		fp = READ_ONCE(l->fingerprint[k]);
		if (!word || word & WORD_MOVING) {
			s->recoloured += word && s->recolour; /* the next pass meets it */
			continue;
		}
		age = age_of(fp, now);
		if (way_of_spent(word, age, lifetimes()) != WAY_EXPIRED) {
			s->kept++;
			if (is_learned(word))
				age_word(s, l, k, word, age);
		} else if (compare_and_swap(&l->word[k], word, 0)) {
			tally_change(word, 0);
			if (earlier)
				free_before(line, l, k);
			else
				free_slot(line, l, k);
			s->removed++;
		}
	}
	return 0;
}

/* sweep_flow_line is the callback of bpf_loop. */
static long sweep_flow_line(__u64 i, struct sweep *s)
{
	return sweep_slots(s, s->from + i, line_at(s->from + i), false);
}

/* sweep_line_before is the callback of bpf_loop. */
static long sweep_line_before(__u64 i, struct sweep *s)
{
	return sweep_slots(s, s->from + i, line_before(s->from + i), true);
}

/* with_record runs a callback on the frame, a struct sweep. */
static __always_inline int with_record(struct xdp_md *ctx, long (*callback)(__u64, struct sweep *))
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct sweep *data = take(&c, sizeof(*data)), s;

	if (!data)
		return XDP_ABORTED;
	s = *data;
	bpf_loop(s.count, callback, &s, 0);
	c = (struct cursor){ (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	data = take(&c, sizeof(*data));
	if (!data)
		return XDP_ABORTED;
	*data = s;
	return XDP_DROP;
}

SEC("xdp")
int sweep_flows(struct xdp_md *ctx)
{
	return with_record(ctx, sweep_flow_line);
}

/* sweep_before is sweep_flows of the table of before. */
SEC("xdp")
int sweep_before(struct xdp_md *ctx)
{
	return with_record(ctx, sweep_line_before);
}

/* owe_flow gives a seat the least score, 0, until its count changes: with the next flow. */
static __always_inline void owe_flow(struct tally *t, __u64 i)
{
	__u64 was;

	below(i, MAX_SEATS);
	was = READ_ONCE(t->leaf[i]);
	if (was != NO_SEAT && compare_and_swap(&t->leaf[i], was, was & ((1ULL << SCORE_SHIFT) - 1)))
		renew_above(t, i);
}

/* turn_afresh gives a leaf the next turn. */
static __always_inline void turn_afresh(struct tally *t, __u64 i)
{
	__u64 was;

	below(i, MAX_SEATS);
	was = READ_ONCE(t->leaf[i]);
	compare_and_swap(&t->leaf[i], was, leaf_now(t, &t->seat[i], next_turn(t), i));
}

/* renew_seat is the callback of bpf_loop. */
static long renew_seat(__u64 i, struct sweep *s)
{
	struct tally *t = tally_at(s->from);

	if (!t)
		return 1;
	i = s->first + i * (s->afresh ?: 1);
	if (s->owed) {
		owe_flow(t, i);
		return 0;
	}
	if (s->afresh)
		turn_afresh(t, i);
	renew_until_right(s->from, i);
	return 0;
}

/* renew_tally carries the counts and weights of so many seats of tally `from`, from `first` on, into
 * its tree, or lets them have the next flows. */
SEC("xdp")
int renew_tally(struct xdp_md *ctx)
{
	return with_record(ctx, renew_seat);
}
