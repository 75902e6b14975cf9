/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* probe.h: a new connection that is offered to a server that is down, to find out whether it answers
 * again (lb/health.h). Where servers signal, a server may speak for the flows that it is a
 * member, so only such a flow is a probe: user space makes a server that is down the last member of
 * the buckets that it would be a candidate of. */
#pragma once
#include "lb/members.h"
#include "lb/health.h"

/* last_member returns the number of a bucket's last member, or NO_SERVER. */
static __always_inline __u32 last_member(const struct service *svc, __u64 bucket)
{
	__u32 slot = svc->table, members = members_of(bucket), at;
	const __u64 *more;
	void *table;

	if (!members)
		return NO_SERVER;
	if (members <= NAMED_MEMBERS)
		return named_member(bucket, members - 1);
	table = bpf_map_lookup_elem(&tables, &slot);
	if (!table)
		return NO_SERVER;
	members -= FIRST_MEMBERS + 1;
	at = rest_of(bucket) + members / ELEMENT_MEMBERS;
	more = bpf_map_lookup_elem(table, &at);
	return more ? *more >> members % ELEMENT_MEMBERS * 16 & 0xffff : NO_SERVER;
}

/* take_probe returns a bucket of the server that a flow of that bucket is to probe, or 0. Of the CPUs
 * that meet a probe a single CPU takes it. A function of its own, as it is rare. */
__noinline __u64 take_probe(const struct service *svc, __u64 bucket)
{
	__u64 probe, *at;

	if (!svc)
		return 0;
	at = probe_at(svc);
	probe = at ? READ_ONCE(*at) : 0;
	if (!probe || (is_signalled(svc) && last_member(svc, bucket) != named_member(probe, 0)))
		return 0;
	return compare_and_swap(at, probe, 0) ? probe : 0;
}
