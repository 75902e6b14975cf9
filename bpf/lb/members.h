/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* members.h: all members of a bucket. Of more than three, the bucket names the first FIRST_MEMBERS;
 * the others are in elements of the table behind the buckets, ELEMENT_MEMBERS an element
 * (dataplane/lb/tables.go). */
#pragma once
#include "lb/choose/choose.h"

enum crowding {
	ELEMENT_MEMBERS = 4,
	CROWD_ELEMENTS = (MAX_MEMBERS - FIRST_MEMBERS + ELEMENT_MEMBERS - 1) / ELEMENT_MEMBERS,
	CROWD_START = ELEMENT_MEMBERS - FIRST_MEMBERS,
};

/* The members from CROWD_START on, so that whole elements follow the first two. */
struct crowd {
	__u16 server[256];
};

_Static_assert((1 + CROWD_ELEMENTS) * ELEMENT_MEMBERS <= 256, "all have room");

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

/* rest_of is the first element behind the buckets with members of a bucket of more than three. */
static __always_inline __u32 rest_of(__u64 bucket)
{
	return (bucket >> REST_SHIFT & ((1 << (CHOICES_SHIFT - REST_SHIFT)) - 1)) * 2;
}

/* element_of returns an element of a service's table, or 0. */
static __always_inline __u64 element_of(__u32 slot, __u32 at)
{
	void *table = bpf_map_lookup_elem(&tables, &slot);
	const __u64 *element = table ? bpf_map_lookup_elem(table, &at) : NULL;

	return element ? *element : 0;
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
	__u32 at = g->next + i, to = (i + 1) * ELEMENT_MEMBERS & 255 & ~(ELEMENT_MEMBERS - 1);
	const __u64 *more = bpf_map_lookup_elem(g->table, &at);

	if (more)
		__builtin_memcpy(&g->crowd->server[to], more, sizeof(*more));
	return !more;
}

/* gather copies the members of a flow's bucket to this CPU's crowd and returns their number. If
 * user space replaced the table meanwhile, these are the first two alone. */
__noinline int gather(const struct packet *p, const struct service *svc)
{
	struct gathering g = { .crowd = crowd_of_cpu() };
	__u64 bucket = bucket_of(p, svc);
	__u32 at = svc ? svc->table : 0, members = members_of(bucket);

	if (!g.crowd)
		return 0;
	for (__u32 i = 0; i < NAMED_MEMBERS; i++)
		g.crowd->server[CROWD_START + i] = named_member(bucket, i);
	if (members <= NAMED_MEMBERS)
		return members;
	g.table = bpf_map_lookup_elem(&tables, &at);
	if (!g.table)
		return FIRST_MEMBERS;
	g.next = rest_of(bucket);
	bpf_loop((members - FIRST_MEMBERS + ELEMENT_MEMBERS - 1) / ELEMENT_MEMBERS, copy_element,
		 &g, 0);
	return bucket_of(p, svc) == bucket ? members : FIRST_MEMBERS;
}

/* crowd_member returns the number of a member that gather found. */
static __always_inline __u32 crowd_member(const struct crowd *c, __u32 at)
{
	return c->server[(at + CROWD_START) & 255];
}
