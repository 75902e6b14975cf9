/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* offerings.h: the services of this server. */
#pragma once
#include "packet/parse.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, struct service_key);
	__type(value, struct offering);
} offerings SEC(".maps");

static __always_inline const struct offering *offering_at(const struct in6_addr *vip,
							  __be16 port_be, __u8 protocol)
{
	struct service_key key = { .vip = *vip, .port_be = port_be, .protocol = protocol };

	return bpf_map_lookup_elem(&offerings, &key);
}

/* offering_of returns the packet's service, or NULL. */
static __always_inline const struct offering *offering_of(const struct packet *p)
{
	if (p->kind != KIND_TCP && p->kind != KIND_UDP && p->kind != KIND_TOO_BIG)
		return NULL;
	return offering_at(&p->t.vip, p->t.vip_port_be, p->t.protocol);
}

/* vip_of returns an offering at the VIP of a packet without ports, or NULL. */
static __always_inline const struct offering *vip_of(const struct packet *p)
{
	return offering_at(&p->t.vip, 0, 0);
}
