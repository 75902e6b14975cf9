/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* insert.h: writing entries of the agent's table of flows (flow_table.h). */
#pragma once
#include "agent/evict.h"

#define TRIES 3 /* while other CPUs date the same entry */

/* conn_take claims a free slot of a line: the first of those that are not 0 in `among`. Returns
 * its number, or a negative number. */
static __always_inline int conn_take(__u32 line, __u64 among, __u8 hint)
{
	__u64 *hints = conn_hints_of(line), was, free, i;

	if (!hints)
		return -1;
	was = READ_ONCE(*hints);
	free = free_slots(was) & among;
	i = free_slot_of(free);
	stall();
	return free && compare_and_swap(hints, was, was | (__u64)hint << 8 * i) ? (int)i : -1;
}

/* conn_take_over claims the slot of an embryonic entry, or of an earlier entry of the flow. */
static __always_inline bool conn_take_over(__u32 line, struct conn_line *s, __u32 i,
					   __u64 fingerprint)
{
	__u64 was = READ_ONCE(s->fingerprint[i]);

	if (was >= CLAIMED || no_digest(was) ||
	    (was & ESTABLISHED && !no_digest(was ^ fingerprint)) ||
	    !compare_and_swap(&s->fingerprint[i], was, CLAIMED | (was & DISPLACED)))
		return false;
	if (was & IN_ALTERNATE)
		conn_uncount_displaced(conn_alternate(line, was));
	write_hint(conn_hints_of(line), i, hint_of(fingerprint));
	stall();
	return true;
}

/* conn_claim claims the slot `at` for a flow. Returns false if another CPU has it. A function of
 * its own, as it is rare. */
__noinline bool conn_claim(__u64 hash, int at)
{
	__u64 fingerprint = conn_fingerprint(hash), i = at & (SLOTS - 1);
	__u32 line = conn_line_of(hash, at);
	struct conn_line *s = conn_line_at(line);

	if (!s || (at & AT_ALTERNATE && !conn_count_displaced(conn_primary(hash))))
		return false;
	stall();
	if (conn_take(line, 1ULL << 8 * i, hint_of(fingerprint)) >= 0 ||
	    conn_take_over(line, s, i, fingerprint))
		return true;
	if (at & AT_ALTERNATE)
		conn_uncount_displaced(conn_primary(hash));
	return false;
}

#define FREE_RANK (1ULL << 17)
#define EMBRYONIC_RANK (1ULL << 16)
#define STALE_RANK (EMBRYONIC_RANK | 1000) /* embryonic, not seen for a second */

/* rank_of ranks an embryonic entry's slot higher the longer it was not seen, any other slot
 * 0; the slot's number is in the last three bits. A slot without a digest is claimed, too. */
static __always_inline __u64 rank_of(const struct conn_line *s, __u64 i, __u16 now)
{
	__u64 was = READ_ONCE(s->fingerprint[i]),
	      rank = (EMBRYONIC_RANK | (__u16)(now - was)) * SLOTS | i,
	      claimed = is_less((was >> FINGERPRINT_SHIFT) + 1 & CLAIMED >> FINGERPRINT_SHIFT, 2);

	return rank * (((was / ESTABLISHED & 1) | claimed) ^ 1);
}

static __always_inline __u64 best_of_four(const struct conn_line *s, __u64 i, __u16 now)
{
	return larger_of(larger_of(rank_of(s, i, now), rank_of(s, i + 1, now)),
			 larger_of(rank_of(s, i + 2, now), rank_of(s, i + 3, now)));
}

/* conn_best_slot ranks a line's best slot for a new flow: a free slot, or that of the
 * embryonic entry that was not seen for longest. */
__noinline int conn_best_slot(__u32 line, __u64 now)
{
	const __u64 *hints = conn_hints_of(line);
	struct conn_line *s = conn_line_at(line);
	__u64 free;

	if (!s || !hints)
		return 0;
	free = free_slots(READ_ONCE(*hints));
	if (free)
		return FREE_RANK * SLOTS | free_slot_of(free);
	return larger_of(best_of_four(s, 0, conn_seen(now)), best_of_four(s, 4, conn_seen(now)));
}

/* conn_slot_for returns where a new flow's entry goes, or a negative number. In a flood of
 * SYNs embryonic entries stay in their primary lines, and searches read a single line. */
static __always_inline int conn_slot_for(__u64 hash, __u64 now)
{
	__u32 primary = conn_primary(hash);
	__u32 alternate = conn_alternate(primary, conn_fingerprint(hash));
	int first = conn_best_slot(primary, now), second;

	if (first >= (int)STALE_RANK * SLOTS)
		return first & (SLOTS - 1);
	second = alternate == primary ? 0 : conn_best_slot(alternate, now);
	if (second < (int)FREE_RANK * SLOTS && first >= (int)EMBRYONIC_RANK * SLOTS)
		return first & (SLOTS - 1);
	return second < (int)EMBRYONIC_RANK * SLOTS ? -1 : (second & (SLOTS - 1)) | AT_ALTERNATE;
}

/* write_entry writes an entry: `c` has all of it but its flow. */
static __always_inline void write_entry(struct conn *to, const struct tuple *t,
					const struct conn *c)
{
	const __u64 *flow = (const void *)t, *rest = (const void *)c;
	__u64 *word = (void *)to;
	int i;

	for (i = 0; i < TUPLE_PAIRS - 1; i++)
		word[i] = flow[i];
	word[i] = flow[i] | rest[i];
	stall();
	while (++i < (int)sizeof(*to) / 8)
		word[i] = rest[i];
}

/* conn_room claims a slot for a new flow. Returns where, or a negative number. */
static __always_inline int conn_room(__u64 hash, __u64 now)
{
	int at = conn_take(conn_primary(hash), EACH_HINT, hint_of(conn_fingerprint(hash)));

	if (at >= 0)
		return at;
	at = conn_slot_for(hash, now);
	if (at < 0)
		at = conn_make_room(hash, now);
	return at >= 0 && conn_claim(hash, at) ? at : -1;
}

/* publish writes the fingerprint of a slot that this CPU claimed. No atomic but for the first slot,
 * which counts displaced entries: it would wait for the slot's memory. */
static __always_inline void publish(struct conn_line *s, __u32 i, __u64 fingerprint)
{
	if (i)
		*(volatile __u64 *)&s->fingerprint[i] = fingerprint;
	else
		__sync_fetch_and_xor(&s->fingerprint[0],
				     (READ_ONCE(s->fingerprint[0]) & ~DISPLACED) ^ fingerprint);
}

/* conn_put writes the entry of a flow, ESTABLISHED or not, over its old entry `at`, if that
 * is not negative. Returns where it is; negative: no slot, or another CPU is writing it. */
__noinline int conn_put(const struct tuple *t, __u64 hash, const struct conn *c, int at,
			__u64 established)
{
	__u64 fingerprint = conn_fingerprint(hash);
	struct conn_line *s;
	__u32 i;

	if (!t || !c)
		return -1;
	if (at < 0)
		at = conn_room(hash, seen_ns(c));
	else if (!conn_claim(hash, at))
		return -1;
	s = conn_line_at(conn_line_of(hash, at));
	if (at < 0 || !s)
		return -1;
	i = at & (SLOTS - 1);
	write_entry(&s->slot[i], t, c);
	fingerprint |= conn_seen(seen_ns(c)) | established | (at & AT_ALTERNATE ? IN_ALTERNATE : 0);
	publish(s, i, fingerprint);
	return (at & (2 * SLOTS - 1)) | (established ? AT_ESTABLISHED : 0);
}

/* conn_change sets bits of an entry's fingerprint, or frees its slot if `bits` is 0. Returns
 * false if they are set already, or the entry is no longer there. */
__noinline bool conn_change(__u64 hash, int at, __u64 bits)
{
	__u32 line = conn_line_of(hash, at), i = at & (SLOTS - 1);
	struct conn_line *s = conn_line_at(line);
	__u64 was;

	if (!s)
		return false;
	for (int k = 0; k < TRIES; k++) {
		was = READ_ONCE(s->fingerprint[i]);
		if (!no_digest(was ^ conn_fingerprint(hash)) || (bits && (was & bits) == bits))
			return false;
		if (!compare_and_swap(&s->fingerprint[i], was, was | (bits ?: CLAIMED)))
			continue;
		if (!bits)
			conn_free(line, s, i, was);
		return true;
	}
	return false;
}
