/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* pending.h: accepted connections with an unfinished handshake, counted by the epoch of
 * their acceptance, so that connections that never finish it expire. Go's twin is
 * objects.Expected. */
#pragma once
#include "core/stall.h"

static __always_inline __u32 epoch_of(__u64 now)
{
	return now >> EPOCH_SHIFT;
}

/* Epochs are counted without the lock: an epoch is a word, its count the upper half. */
#define PENDING_ONE (1ULL << 32)

static __always_inline __u64 *pending_epoch(struct load *l, __u32 epoch)
{
	return (__u64 *)&l->pending[epoch % PENDING_EPOCHS];
}

/* pending_add counts an accepted connection with an unfinished handshake. If the exchange
 * fails, another CPU began the epoch. */
static __always_inline void pending_add(struct load *l, __u32 epoch)
{
	__u64 *word = pending_epoch(l, epoch), was = *word;

	if ((__u32)was == epoch ||
	    __sync_val_compare_and_swap(word, was, epoch | PENDING_ONE) != was)
		__sync_fetch_and_add(word, PENDING_ONE);
}

#define REMOVE_TRIES 3 /* while other CPUs count in the same epoch; the rest expires */

/* pending_remove takes back a pending_add of that epoch, unless the epoch has expired. The
 * count of an epoch never falls below 0. Of an epoch 16 bits are enough: an entry is embryonic for
 * less than 2^16 of them. */
static __always_inline void pending_remove(struct load *l, __u16 epoch)
{
	__u64 *word = pending_epoch(l, epoch), was;

	for (int i = 0; i < REMOVE_TRIES; i++) {
		was = READ_ONCE(*word);
		if ((__u16)was != epoch || was < PENDING_ONE)
			return;
		if (compare_and_swap(word, was, was - PENDING_ONE))
			return;
	}
}

/* pending_count counts the pending connections of the last PENDING_EPOCHS epochs, at most
 * `cores`: they are no load yet, and a flood of them must not make a server look full. */
static __always_inline __u32 pending_count(const struct load *l, __u32 epoch, __u32 cores)
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
