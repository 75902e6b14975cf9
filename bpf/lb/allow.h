/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* allow.h: `allow`: the prefixes of the clients that a service serves. All packets of such a service are looked at, so
 * that a prefix that is taken back ends access at once. */
#pragma once
#include "lb/service.h"

struct allowed {
	__u32 bits; /* of what follows that count */
	__u32 list;
	struct in6_addr client;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_ALLOWED);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct allowed);
	__type(value, __u32);
} allowed_clients SEC(".maps");

/* in_list is a function of its own, as few services have a list. */
__noinline bool in_list(const struct packet *p, __u32 list)
{
	struct allowed key = { .bits = 8 * (sizeof(key) - sizeof(key.bits)), .list = list };

	if (!p)
		return false;
	key.client = p->t.client;
	return bpf_map_lookup_elem(&allowed_clients, &key);
}

/* is_stranger: the service does not serve a packet's client. */
static __always_inline bool is_stranger(const struct packet *p, const struct service *svc)
{
	return svc->allow && !in_list(p, svc->allow);
}
