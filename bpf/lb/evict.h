/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* evict.h: the entries that give way to a new flow, where its two lines have no free slot.
 *
 *   in this order           once it was not seen for
 *   expired                 its limit: embryonic 10 s, over `linger`, an open TCP connection that
 *                           the client's packets made 2 h 4 min, any other `idle`
 *   embryonic               -; of a flow that learns, which has its server from its entry alone,
 *                           RECENT
 *   over                    RECENT; and of flows that learn, those that the client closed
 *   -- here an entry moves to its other line instead, if that makes room --
 *   half-closed             HALF_CLOSED_S
 *   brief                   RECENT; a UDP flow of two datagrams
 *   idle                    IDLE_S
 *   in excess               RECENT; of a service that has two slots more here than the flow's
 *
 * So no flow that sent a packet within RECENT gives way, and the limits hold while no daemon
 * sweeps. An idle entry gives way to a flow of its own service, or of a service that has fewer slots
 * in these two lines; the services of UDP together are weighed against those of TCP likewise.
 * A service alone may fill the table, and no service fills it against another. */
#pragma once
#include "lb/counters.h"
#include "lb/flow.h"
#include "table/ages.h"

#define TICKS(s) ((s) * 1000000000ULL >> SEEN_SHIFT)
#define RECENT_TICKS 16 /* 4.0 to 4.3 s */
#define HALF_CLOSED_S 30
#define IDLE_S 60

/* How readily an entry gives way. */
enum way {
	WAY_STAYS,
	WAY_EXCESS,
	WAY_IDLE,
	WAY_BRIEF,
	WAY_HALF_CLOSED,
	WAY_OVER,
	WAY_EMBRYONIC,
	WAY_EXPIRED,
};

/* either is a if the condition is 1, b if it is 0. */
static __always_inline __u64 either(__u64 condition, __u64 a, __u64 b)
{
	return b ^ ((a ^ b) & -condition);
}

/* The limits of established entries, in ticks, which a search over entries reads once. */
struct lifetimes {
	__u64 over, idle, more; /* of an open TCP connection of the client's making */
};

static __always_inline struct lifetimes lifetimes(void)
{
	return (struct lifetimes){ linger_ns >> SEEN_SHIFT, idle_ns >> SEEN_SHIFT,
				   (tcp_idle_ns - idle_ns) >> SEEN_SHIFT };
}

/* way_of_spent is the way of an entry that is expired, embryonic or over; WAY_STAYS of any
 * other. The rest of the tick that saw it last counts as seen. */
static __always_inline __u64 way_of_spent(__u64 word, __u64 age, struct lifetimes limit)
{
	__u64 learned = is_learned(word), embryonic = learned & word >> 46;
	__u64 established = word >> 14 & 1 & ~embryonic, closed = word >> WORD_CLOSED;
	__u64 over = established & (closed >> 2 | (closed & closed >> 1)), most, way;
	__u64 recent = is_less(age, RECENT_TICKS);

	_Static_assert(WORD_ESTABLISHED == 1 << 14 && CLOSED_RESET == 4 &&
			       (CLOSED_CLIENT | CLOSED_SERVER) == 3 &&
			       WORD_EMBRYONIC == 1ULL << 46 &&
			       WORD_CLIENT_CLOSED == 1ULL << WORD_CLOSED &&
			       WORD_KEPT == 1ULL << 63 && WORD_UDP == 1ULL << 52,
		       "the bits of a word");
	/* No agent is asked for a flow of the client's making, so its entry is all that finds it. */
	most = limit.idle + limit.more * (word >> 63 & ~(word >> 52 | closed));
	most = either(over, limit.over, most) + 1;
	way = either(established, (over | (learned & closed)) * WAY_OVER * (recent ^ 1),
		     WAY_EMBRYONIC * ((recent & embryonic) ^ 1));
	way = either(is_less(either(established, most, EMBRYONIC_TICKS - 1), age), WAY_EXPIRED,
		     way);
	return way * is_less(0, word >> 1 | (word & 1)) *
	       (1 - (word >> 15 & 1)); /* there, and not moving */
}

/* way_of returns how readily an entry gives way: enum way. Functions here are noinline so that
 * the verifier looks at each once. */
__noinline int way_of(__u64 word, __u16 age)
{
	int way = way_of_spent(word, age, lifetimes());

	if (way || !word || word & WORD_MOVING || age < RECENT_TICKS)
		return way;
	if (word >> WORD_CLOSED & (CLOSED_CLIENT | CLOSED_SERVER) && age >= TICKS(HALF_CLOSED_S))
		return WAY_HALF_CLOSED;
	if (word & WORD_BRIEF)
		return WAY_BRIEF;
	return age >= TICKS(IDLE_S) ? WAY_IDLE : WAY_EXCESS;
}

/* same_in is 1 if two words are the same in these bits, else 0; without a branch: the verifier
 * follows both ways. */
static __always_inline __u64 same_in(__u64 one, __u64 other, __u64 bits)
{
	__u64 differ = (one ^ other) & bits;

	differ |= -differ;
	asm volatile("%0 >>= 63" : "+r"(differ));
	return differ ^ 1;
}

/* weigh returns how many slots of a line a service has more than another, by 2^32, plus how
 * many its protocol has more. */
__noinline __s64 weigh(__u32 line, __u64 one, __u64 other)
{
	struct line *l = line_at(line);
	__u64 word, established;
	__s64 more = 0;

	for (__u32 i = 0; l && i < LINE_SLOTS; i++) {
		word = READ_ONCE(l->word[i]);
		established = word >> 14 & 1;
		more += established * (same_in(word, one, WORD_SERVICE) -
				       same_in(word, other, WORD_SERVICE))
			<< 32;
		more += established *
			(same_in(word, one, WORD_UDP) - same_in(word, other, WORD_UDP));
	}
	return more;
}

/* excess_of returns how many slots of two lines the service of an entry has more than a new
 * flow's, or the services of its protocol have more. */
static __always_inline __s64 excess_of(__u32 line, __u32 other, __u64 word, __u64 service)
{
	__s64 more = weigh(line, word, service), services;

	if (other != line)
		more += weigh(other, word, service);
	services = (more + (1LL << 31)) >> 32;
	return larger_of(services, (__s32)more);
}

/* may_take is 1 if a flow of a service may take the slot of an entry, else 0. */
static __always_inline __u64 may_take(__u64 way, __u64 word, __u64 service, __s64 excess)
{
	__u64 in_excess = is_less(way, WAY_IDLE), spare = is_less(WAY_IDLE, way);
	__u64 own = same_in(word, service, WORD_SERVICE) & (in_excess ^ 1);

	return spare | own | is_less(in_excess + LINE_SLOTS * 2, excess + LINE_SLOTS * 2);
}

#define RANK_WAY 23 /* the way of a rank is above this bit; WAY_STAYS: no entry gives way */

/* rank_of ranks an entry among those that give way: by the way, the excess, the age, and whether
 * this is its primary line (such an entry goes first, as no other line counts it); in the last
 * two bits is its slot, inverted. */
static __always_inline __u64 rank_of(__u64 way, __u32 excess, __u64 fp, __u16 age, __u32 i)
{
	__u64 last = (age * 2 + !(fp & IN_ALTERNATE)) * LINE_SLOTS + (LINE_SLOTS - 1 - i);

	return way << RANK_WAY | (excess & 15) << (RANK_WAY - 4) | last;
}

/* ages_of is age_of without a branch, for the verifier. */
static __always_inline __u16 ages_of(__u64 fp, __u16 now)
{
	__u16 age = now - (__u16)fp;

	return age * is_less(age, FUTURE_AGE);
}

/* spent_in returns the rank of the entry in a line that gives way first, of those that are
 * expired, embryonic or over. Without a branch. */
static __always_inline __u64 spent_in(const struct line *l, __u16 now, struct lifetimes limit)
{
	__u64 fp, word, rank = 0;
	__u16 age;

#pragma unroll
	for (__u32 i = 0; i < LINE_SLOTS; i++) {
		word = READ_ONCE(l->word[i]);
		fp = READ_ONCE(l->fingerprint[i]);
		age = ages_of(fp, now);
		rank = larger_of(rank, rank_of(way_of_spent(word, age, limit), 0, fp, age, i));
	}
	return rank;
}

/* readiest_spent is spent_in as a function, where the chain of calls has room for it. */
__noinline __u64 readiest_spent(__u32 line, __u16 now)
{
	struct line *l = line_at(line);

	return l ? spent_in(l, now, lifetimes()) : 0;
}

/* readiest returns the rank of the entry in a line that gives way first to a flow of a service
 * with this line and another line. */
__noinline __u64 readiest(__u32 line, __u32 other, __u64 service)
{
	struct line *l = line_at(line);
	__u64 fp, word, rank = 0, way;
	__u16 now = seen_now(), age;
	__s64 excess;

	for (__u32 i = 0; l && i < LINE_SLOTS; i++) {
		word = READ_ONCE(l->word[i]);
		fp = READ_ONCE(l->fingerprint[i]);
		age = age_of(fp, now);
		way = way_of(word, age);
		if (way == WAY_STAYS)
			continue;
		excess = excess_of(line, other, word, service);
		rank = larger_of(rank, may_take(way, word, service, excess) *
					       rank_of(way, excess * is_less(way, WAY_BRIEF), fp,
						       age, i));
	}
	return rank;
}

/* evict_from gives the slot of an entry that still gives way to another fingerprint. The slot is
 * free at no time, so a third flow cannot take it. Returns the slot, or LINE_SLOTS. */
static __always_inline int evict_from(__u32 line, struct line *l, __u64 fp, __u64 rank)
{
	__u64 word, was, i = ~rank;
	__u16 age;

	asm volatile("%0 &= %1" : "+r"(i) : "i"(LINE_SLOTS - 1)); /* the verifier sees the mask */
	word = READ_ONCE(
		l->word[i]); /* before the date, which then is not that of an earlier entry */
	was = READ_ONCE(l->fingerprint[i]);
	age = ages_of(was, seen_now());
	/* As way_of answers, without a frame more: the kernel allows eight, and the bench adds one. */
	if (way_of_spent(word, age, lifetimes()) == WAY_STAYS &&
	    (age < RECENT_TICKS || !word || word & WORD_MOVING))
		return LINE_SLOTS;
	if (!compare_and_swap(&l->word[i], word, 0))
		return LINE_SLOTS;
	tally_change(word, 0);
	count(LB_EVICTED_EXCESS - WAY_EXCESS + (rank >> RANK_WAY));
	stall();
	was = READ_ONCE(l->fingerprint[i]);
	if (!compare_and_swap(&l->fingerprint[i], was, fp | (was & DISPLACED))) {
		free_slot(line, l, i); /* another CPU dated the entry or changed the count */
		return LINE_SLOTS;
	}
	set_hint(line, i, hint_of(fp));
	if (was & IN_ALTERNATE)
		uncount_displaced(alternate_line(line, was));
	return i;
}

/* evict is evict_from as a function, where a slot is seldom taken. */
__noinline int evict(__u32 line, __u64 fp, __u64 rank)
{
	struct line *l = line_at(line);

	return l ? evict_from(line, l, fp, rank) : LINE_SLOTS;
}
