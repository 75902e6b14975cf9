/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* accept.h: whether an agent takes an offer that it could pass on. Static:
 * busy < c (SRLB Algorithm 1). Dynamic: the same, and c moves by one at the end
 * of a window whose share of acceptances left ½ ± ε (6LB Algorithm 2; SRLB's
 * printing resets its counters at every offer, which cannot be meant).
 * Go's twin is policy.Acceptor. */
#pragma once
#include "core/types.h"

/* adapt ends a window. */
static __always_inline void adapt(const struct offering *o, struct load *l)
{
	__u64 share_ppm = l->accepted * 1000000ULL;
	__u64 low = (500000ULL - o->epsilon_ppm) * o->window;
	__u64 high = (500000ULL + o->epsilon_ppm) * o->window;

	if (share_ppm < low && l->threshold < o->workers)
		l->threshold++;
	else if (share_ppm > high && l->threshold > 0)
		l->threshold--;
	l->attempts = 0;
	l->accepted = 0;
}

/* accepts decides on one offer; the caller holds l->lock if acceptance is dynamic. */
static __always_inline bool accepts(const struct offering *o, struct load *l, __u32 busy)
{
	bool yes;

	if (o->acceptance == ACCEPT_ALWAYS)
		return true;
	if (o->acceptance == ACCEPT_DYNAMIC && ++l->attempts >= o->window)
		adapt(o, l);
	yes = busy < l->threshold;
	if (yes && o->acceptance == ACCEPT_DYNAMIC)
		l->accepted++;
	return yes;
}

static __always_inline __u32 epoch_of(__u64 now)
{
	return now >> EPOCH_SHIFT;
}

/* Epochs are counted without the lock: each is one word, the count its upper half. */
#define PENDING_ONE (1ULL << 32)

static __always_inline __u64 *pending_word(struct load *l, __u32 epoch)
{
	return (__u64 *)&l->pending[epoch % PENDING_EPOCHS];
}

/* expect notes a connection that was accepted and has yet to arrive. Who cannot
 * begin the epoch finds it begun. */
static __always_inline void expect(struct load *l, __u32 epoch)
{
	__u64 *word = pending_word(l, epoch), was = *word;

	if ((__u32)was == epoch ||
	    __sync_val_compare_and_swap(word, was, epoch | PENDING_ONE) != was)
		__sync_fetch_and_add(word, PENDING_ONE);
}

/* arrive takes back what expect noted in that epoch, unless it has expired. */
static __always_inline void arrive(struct load *l, __u32 epoch)
{
	__u64 *word = pending_word(l, epoch), was = *word;

	if ((__u32)was == epoch && was >= PENDING_ONE)
		__sync_fetch_and_add(word, -PENDING_ONE);
}

/* expected counts the accepted connections of the last PENDING_EPOCHS epochs
 * that have not arrived, at most `cores`: they are not load yet, and a flood of
 * them must not make a server look full. */
static __always_inline __u32 expected(const struct load *l, __u32 epoch, __u32 cores)
{
	const volatile __u64 *pending = (const void *)l->pending;
	__u32 n = 0;

	for (int i = 0; i < PENDING_EPOCHS; i++) {
		__u64 word = pending[i];

		if (epoch - (__u32)word < PENDING_EPOCHS)
			n += word >> 32;
	}
	return n < cores ? n : cores;
}
