/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* works.h: the work of each service, as work.bpf.c counts it and the agent reads it.
 *
 *   work = queue + unread + run + max(blocked, out)
 *
 * The queue is the listener's, read at each offer. Each other term is a number of sockets or
 * tasks. A term has two counts; one is 0 except during a recount (count.h). */
#pragma once
#include "core/types.h"

enum work_term {
	WORK_UNREAD = 0,  /* accepted connections with data that no task has read; of those that
			   * a task has read and not answered, all but one */
	WORK_EARLY = 1,	  /* such connections in the accept queue */
	WORK_RUN = 2,	  /* tasks that run, or would if there were a CPU */
	WORK_BLOCKED = 3, /* tasks that sleep within a request */
	WORK_OUT = 4,	  /* connections to others that owe an answer */
	WORK_TERMS = 8,	  /* room: a power of two, so that an index can be masked */
};

enum work_sharing {
	WORK_SHARED_MS =
		100, /* so long after an answer, another one is owed on a shared connection */
};

struct work {
	__s32 counts[2 * WORK_TERMS];
	__u64 shared_ns; /* CLOCK_MONOTONIC of the last answer on a shared connection (calls_out.h) */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space ends a recount */
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct work);
} works SEC(".maps");

static __always_inline struct work *work_at(__u32 i)
{
	return bpf_map_lookup_elem(&works, &i);
}

/* larger has no branch: the verifier would follow both. */
static __always_inline __s64 larger(__s64 a, __s64 b)
{
	__s64 less = a - b;

	return a - (less & less >> 63);
}

/* work_of is a term. An event that was lost makes it 0 at worst, until the next recount. */
static __always_inline __s64 work_of(const struct work *w, enum work_term term)
{
	return larger((__s64)w->counts[term] + w->counts[WORK_TERMS + term], 0);
}

/* out_of is the term of connections to others, at a time of CLOCK_MONOTONIC. The clocks that
 * write and read it may differ by some ticks. It has no branch, either. */
static __always_inline __s64 out_of(const struct work *w, __u64 now)
{
	const __u64 most = WORK_SHARED_MS * 1000000ULL;
	__u64 age = now + most - w->shared_ns;
	__u64 shared = ((age - 2 * most) & ~age) >> 63; /* 1 if age < 2 * most */

	return larger(work_of(w, WORK_OUT), shared);
}
