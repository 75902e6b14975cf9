/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* page.h: the load measure `page`: the application's own word. The daemon copies it into a
 * map, the more often the more offers meet it. */
#pragma once
#include "agent/load/loads.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct reported);
} reports SEC(".maps");

static __always_inline __u64 page_load(const struct offering *o, __u64 now)
{
	__u32 i = o->index;
	struct reported *r = bpf_map_lookup_elem(&reports, &i);

	if (!r)
		return NO_LOAD;
	r->asked++; /* some may be lost */
	if (!r->written_ns)
		return NO_LOAD;
	if (now + STALE_NS < r->written_ns || r->written_ns + STALE_NS < now)
		return NO_LOAD; /* long ago, or by another clock */
	return r->busy;
}
