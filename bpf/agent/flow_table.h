/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flow_table.h: the agent's table of flows, shared by all CPUs, without locks. A line is eight
 * slots, and a cache line of their fingerprints:
 *
 *   fingerprint  digest 42 | established 1 | in alternate 1 | displaced 4 | seen 16
 *                (table/slots.h); `seen` in 2^20 ns, which wraps after a minute
 *
 * A flow's entry is in its primary line or, if that had no free slot, in its alternate line,
 * which follows from the digest and either line; it never moves. A search reads the
 * alternate line only if the primary line counts displaced entries. A new flow takes a free
 * slot of either line, or the slot of the embryonic entry that was not seen for longest: no
 * flood of SYNs costs an established flow its slot while it meets any. Else an established
 * entry may give way (evict.h).
 *
 * Each slot has a hint (table/hints.h), and is free if that is 0. A CPU claims a free slot by its
 * hint, in the word of the line's hints, which is in the cache; any other by swapping its
 * fingerprint for CLAIMED, and then writes the hint. It writes the flow and its entry, and then
 * the flow's fingerprint. (Without a barrier: later packets of a flow follow the delivery of its
 * first.) To free a slot that it claimed it clears the digest, and then the hint. The digest
 * has a key that outlives the agent with the table, so that no sender can aim at a line; the
 * five-tuple is compared, so that no flow is mistaken for another. Two CPUs that accept
 * offers of a flow at once make two entries; searches find the same entry first, and the
 * other expires. */
#pragma once
#include "core/clock.h"
#include "core/digest.h"
#include "core/stall.h"
#include "packet/parse.h"
#include "table/hints.h"
#include "table/slots.h"

#define SLOTS 8 /* of a line; a power of two, so that an index can be masked */

struct conn_line {
	__u64 fingerprint[SLOTS];
	struct conn slot[SLOTS];
};

/* Mapped, so that values begin on a page and fingerprints are a cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading, as `conn_lines` */
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct conn_line);
} conns SEC(".maps");

/* The hints of each line: a byte a slot. They are adopted with the lines, or neither is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* as many as lines */
	__type(key, __u32);
	__type(value, __u64);
} conn_hints SEC(".maps");

_Static_assert(SLOTS == sizeof(__u64), "a hint is a byte");

/* The digests' key, for the agent that adopts the table; this agent's is `flow_key`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct digest_key);
} conn_key SEC(".maps");

const volatile __u32 conn_lines = 1;

#define ESTABLISHED (1ULL << 21)
#define FINGERPRINT_SHIFT 22
#define CLAIMED (~0ULL << FINGERPRINT_SHIFT)

static __always_inline __u64 conn_fingerprint(__u64 hash)
{
	__u64 fingerprint = hash & CLAIMED;

	return fingerprint && fingerprint != CLAIMED ? fingerprint : 1ULL << FINGERPRINT_SHIFT;
}

static __always_inline __u16 conn_seen(__u64 now)
{
	return now >> SEEN_SHIFT;
}

#define FUTURE (1 << 12) /* a few seconds: another CPU's clock may be ahead, by ticks */

/* age_of is how long an entry was not seen, in ns by units of 2^SEEN_SHIFT. */
static __always_inline __u64 age_of(const struct conn *c, __u64 now)
{
	__u32 age = (__u32)(now >> SEEN_SHIFT) - c->seen;

	return age >= (__u32)-FUTURE ? 0 : (__u64)age << SEEN_SHIFT;
}

/* is_of_now is true of a fingerprint with the date of now; two clocks differ by a few ticks. Such
 * an entry is removed by none: its flow was just seen, or began again with the same fingerprint,
 * and no search finds an entry that is claimed. */
static __always_inline bool is_of_now(__u64 fingerprint, __u64 now)
{
	__u16 few = 4 * tick_ns >> SEEN_SHIFT;

	return (__u16)(conn_seen(now) - fingerprint + few) <= 2 * few;
}

/* seen_ns is when an entry was seen, as age_of and conn_seen want it. */
static __always_inline __u64 seen_ns(const struct conn *c)
{
	return (__u64)c->seen << SEEN_SHIFT;
}

static __always_inline __u32 conn_primary(__u64 hash)
{
	return primary_among(hash, FINGERPRINT_SHIFT, conn_lines);
}

static __always_inline __u32 conn_alternate(__u32 line, __u64 fingerprint)
{
	return alternate_among(line, fingerprint >> FINGERPRINT_SHIFT, conn_lines);
}

static __always_inline struct conn_line *conn_line_at(__u32 i)
{
	return bpf_map_lookup_elem(&conns, &i);
}

static __always_inline __u64 *conn_hints_of(__u32 line)
{
	return bpf_map_lookup_elem(&conn_hints, &line);
}

/* conn_is_hinted: a flow may have an entry. False: it has none. */
static __always_inline bool conn_is_hinted(__u64 hash)
{
	__u64 fingerprint = conn_fingerprint(hash);
	__u32 primary = conn_primary(hash);
	const __u64 *one = conn_hints_of(primary);
	const __u64 *other = conn_hints_of(conn_alternate(primary, fingerprint));

	if (!one || !other)
		return true;
	return is_among(READ_ONCE(*one), fingerprint) | is_among(READ_ONCE(*other), fingerprint);
}

/* no_digest is 1 for a fingerprint without a digest, else 0: a free slot, or the difference
 * of two fingerprints with the same digest. Without a branch: the verifier follows both ways. */
static __always_inline __u64 no_digest(__u64 fingerprint)
{
	fingerprint = (fingerprint >> FINGERPRINT_SHIFT) - 1;
	asm volatile("%0 >>= 63" : "+r"(fingerprint));
	return fingerprint;
}

/* slots_with returns a bit for each slot with this digest in its fingerprint. No step depends on
 * the step before. */
static __always_inline __u64 slots_with(const struct conn_line *s, __u64 fingerprint)
{
	__u64 slots = 0;

	for (int i = 0; i < SLOTS; i++)
		slots |= no_digest(READ_ONCE(s->fingerprint[i]) ^ fingerprint) << i;
	return slots;
}

#define ALL_BUT_TOP (~(EACH_HINT << 7))

/* free_slots has a 1 in each byte of a line's hints that is 0. */
static __always_inline __u64 free_slots(__u64 hints)
{
	return ~(((hints & ALL_BUT_TOP) + ALL_BUT_TOP) | hints | ALL_BUT_TOP) >> 7;
}

/* free_slot_of is the first of free_slots, but 0 last: its fingerprint takes an atomic. */
static __always_inline __u64 free_slot_of(__u64 free)
{
	free &= ~1ULL;
	free |= is_less(free, 1);
	return (free & -free) * 0x0001020304050607ULL >> 56;
}

/* first_slot is the lowest bit's number, by a de Bruijn sequence of 8 bits. */
static __always_inline __u64 first_slot(__u64 slots)
{
	__u64 low = slots & -slots;

	return 0x34572610 >> (low * 0x1d >> 5 & 7) * 4 & 7;
}

/* flow_of is an entry's flow, but for its last three bytes, which are not zero. */
static __always_inline const struct tuple *flow_of(const struct conn *c)
{
	return (const struct tuple *)c;
}

#define NO_FLOW_BITS (8 * (int)sizeof(((struct tuple *)0)->zero)) /* of a flow's last word */

_Static_assert(__builtin_offsetof(struct conn, offering) == __builtin_offsetof(struct tuple, zero),
	       "an entry begins with its flow");

static __always_inline bool is_of_flow(const struct conn *c, const struct tuple *t)
{
	const __u64 *v = (const void *)c, *w = (const void *)t;
	__u64 differ = (v[TUPLE_PAIRS - 1] ^ w[TUPLE_PAIRS - 1]) << NO_FLOW_BITS;

	for (int i = 0; i < TUPLE_PAIRS - 1; i++)
		differ |= v[i] ^ w[i];
	return !differ;
}

/* Where an entry is: its slot, AT_ALTERNATE if that is in its alternate line, and
 * AT_ESTABLISHED. Negative: nowhere. */
#define AT_ALTERNATE SLOTS
#define AT_ESTABLISHED (2 * SLOTS)

/* find_in_line searches a line for a flow, and dates its entry. */
static __always_inline int find_in_line(struct conn_line *s, const struct tuple *t,
					__u64 fingerprint, __u64 now)
{
	__u64 at = slots_with(s, fingerprint), was;

	if (!at)
		return -1;
	at = first_slot(at);
	if (!is_of_flow(&s->slot[at], t))
		return -1;
	was = READ_ONCE(s->fingerprint[at]);
	if ((__u16)was != conn_seen(now))
		*(volatile __u16 *)&s->fingerprint[at] = conn_seen(now); /* the low half */
	return at | (was & ESTABLISHED ? AT_ESTABLISHED : 0);
}

/* conn_find_alternate searches a flow's alternate line. Functions are __noinline here and
 * below so that the verifier looks at each once; their arguments are never NULL, but the
 * verifier wants proof. */
__noinline int conn_find_alternate(const struct tuple *t, __u64 hash, __u64 now)
{
	__u64 fingerprint = conn_fingerprint(hash);
	struct conn_line *s = conn_line_at(conn_alternate(conn_primary(hash), fingerprint));
	int at;

	if (!s || !t)
		return -1;
	at = find_in_line(s, t, fingerprint, now);
	return at < 0 ? at : at | AT_ALTERNATE;
}

__noinline int conn_find_slot(const struct tuple *t, __u64 hash, __u64 now)
{
	struct conn_line *s = conn_line_at(conn_primary(hash));
	int at;

	if (!s || !t)
		return -1;
	at = find_in_line(s, t, conn_fingerprint(hash), now);
	return at < 0 && READ_ONCE(s->fingerprint[0]) & DISPLACED
		       ? conn_find_alternate(t, hash, now)
		       : at;
}

static __always_inline __u32 conn_line_of(__u64 hash, int at)
{
	__u32 primary = conn_primary(hash);

	return at & AT_ALTERNATE ? conn_alternate(primary, conn_fingerprint(hash)) : primary;
}

/* conn_at returns the entry in the slot that a search returned. */
static __always_inline struct conn *conn_at(__u64 hash, int at)
{
	struct conn_line *s = conn_line_at(conn_line_of(hash, at));
	__u64 i = at;

	if (!s)
		return NULL;
	asm volatile("%0 &= %1" : "+r"(i) : "i"(SLOTS - 1)); /* the verifier has not seen it */
	return &s->slot[i];
}

/* conn_count_displaced returns false if the count is at its limit or changes all the time.
 * Functions of their own, so that the verifier looks at each once. */
__noinline bool conn_count_displaced(__u32 line)
{
	struct conn_line *s = conn_line_at(line);

	return s && displaced_inc(&s->fingerprint[0]);
}

__noinline int conn_uncount_displaced(__u32 line)
{
	struct conn_line *s = conn_line_at(line);

	if (s)
		displaced_dec(&s->fingerprint[0]);
	return 0;
}

/* conn_free frees a slot that this CPU claimed, when its fingerprint was `was`. */
static __always_inline void conn_free(__u32 line, struct conn_line *s, __u32 i, __u64 was)
{
	slot_free(&s->fingerprint[i]);
	stall();
	write_hint(conn_hints_of(line), i, 0);
	if (was & IN_ALTERNATE)
		conn_uncount_displaced(conn_alternate(line, was));
}
