/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* page.h: the load measure `page`: the application's own word. A program writes it on a page that
 * it maps, or the daemon copies it into a map, the more often the more offers meet it. */
#pragma once
#include "agent/load/loads.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct reported);
} reports SEC(".maps");

struct handed_page {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(__u32)); /* without BTF types, as Go's maps */
	__uint(value_size, sizeof(struct load_page));
};

/* Pages that programs map: a map each, so that none can write another's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__array(values, struct handed_page);
} pages SEC(".maps");

static __always_inline const volatile struct load_page *page_at(__u32 i)
{
	void *page = bpf_map_lookup_elem(&pages, &i);
	__u32 first = 0;

	return page ? bpf_map_lookup_elem(page, &first) : NULL;
}

/* word_load is the word of an application, or NO_LOAD: it may be long ago, by another clock, or
 * any number. */
static __always_inline __u64 word_load(__u64 written_ns, __u32 busy, __u64 now)
{
	if (!written_ns || now + STALE_NS - written_ns > 2 * STALE_NS)
		return NO_LOAD;
	return busy <= MOST_BUSY ? busy : NO_LOAD;
}

static __always_inline __u64 page_load(const struct offering *o, __u64 now)
{
	const volatile struct load_page *page;
	__u32 i = o->index, busy;
	struct reported *r;
	__u64 written_ns;

	page = page_at(i);
	if (page) {
		written_ns = page->written_ns;
		busy = page->busy;
	} else {
		r = bpf_map_lookup_elem(&reports, &i);
		if (!r)
			return NO_LOAD;
		r->asked++; /* some may be lost */
		written_ns = r->written_ns;
		busy = r->busy;
	}
	return word_load(written_ns, busy, now);
}
