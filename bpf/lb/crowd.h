/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* crowd.h: the members of a bucket with more of them than its record has room for. The record
 * has the first RECORD_MEMBERS, and then the number of an element of the table, behind the
 * buckets, from which on the others follow, CROWD_MEMBERS an element (dataplane/lb/tables.go). */
#pragma once
#include "lb/choose/choose.h"

enum crowding {
	RECORD_MEMBERS = 13, /* in the record of a bucket that has more than BUCKET_MEMBERS */
	CROWD_MEMBERS = 16,  /* an element */
	CROWD_ELEMENTS = (MAX_MEMBERS - RECORD_MEMBERS + CROWD_MEMBERS - 1) / CROWD_MEMBERS,
};

/* All members: those of the record, and from CROWD_MEMBERS on the others. */
struct crowd {
	__u16 server[CROWD_MEMBERS + CROWD_ELEMENTS * CROWD_MEMBERS];
};

_Static_assert(sizeof(struct candidates) == CROWD_MEMBERS * sizeof(__u16), "an element's size");
_Static_assert(sizeof(struct crowd) == 512, "crowd_member masks its index");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct crowd);
} crowds SEC(".maps");

static __always_inline struct crowd *crowd_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&crowds, &zero);
}

/* The arguments of copy_element. */
struct gathering {
	struct crowd *crowd;
	void *table;
	__u32 next; /* element */
};

/* copy_element is the callback of bpf_loop; 1 ends it. */
static long copy_element(__u64 i, struct gathering *g)
{
	__u32 at = g->next + i, to = (i + 1) * CROWD_MEMBERS & 255 & ~(CROWD_MEMBERS - 1);
	const struct candidates *more = bpf_map_lookup_elem(g->table, &at);

	if (more)
		__builtin_memcpy(&g->crowd->server[to], more, sizeof(*more));
	return !more;
}

/* gather copies the members of a flow's bucket to this CPU's crowd and returns their number. If
 * user space replaced the table meanwhile, these are the record's alone. */
__noinline int gather(const struct packet *p, const struct service *svc)
{
	struct gathering g = { .crowd = crowd_of_cpu() };
	const struct candidates *b;
	__u32 at = svc ? svc->table : 0, members;

	g.table = bpf_map_lookup_elem(&tables, &at);
	b = p && svc ? choose(p, svc) : NULL;
	if (!g.crowd || !b || !g.table)
		return 0;
	members = b->members;
	g.next = b->server[RECORD_MEMBERS] | (__u32)b->server[RECORD_MEMBERS + 1] << 16;
	__builtin_memcpy(g.crowd->server, b->server, RECORD_MEMBERS * sizeof(__u16));
	bpf_loop((members - RECORD_MEMBERS + CROWD_MEMBERS - 1) / CROWD_MEMBERS % CROWD_MEMBERS,
		 copy_element, &g, 0);
	return choose(p, svc) == b ? members : RECORD_MEMBERS;
}

/* crowd_member returns the number of a member that gather found. */
static __always_inline __u32 crowd_member(const struct crowd *c, __u32 at)
{
	if (at >= RECORD_MEMBERS)
		at += CROWD_MEMBERS - RECORD_MEMBERS;
	return c->server[at & 255];
}
