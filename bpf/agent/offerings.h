/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* offerings.h: the services of this server. */
#pragma once
#include "packet/parse.h"

/* The index of a service's record. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, struct service_key);
	__type(value, __u32);
} offerings SEC(".maps");

/* The records by index: an entry of a flow names its service's, so its packets need no search. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space stores each word at once */
	__uint(max_entries, MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, struct offering);
} offered SEC(".maps");

/* A bit for each port, then a bit for the last 16 bits of each address: whether a service has it.
 * A packet that goes out from elsewhere is no service's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2 * 65536 / 64);
	__type(key, __u32);
	__type(value, __u64);
} offered_bits SEC(".maps");

static __always_inline const struct offering *offered_at(__u32 index)
{
	return bpf_map_lookup_elem(&offered, &index);
}

static __always_inline const struct offering *offering_at(const struct in6_addr *vip,
							  __be16 port_be, __u8 protocol)
{
	struct service_key key = { .vip = *vip, .port_be = port_be, .protocol = protocol };
	const __u32 *index = bpf_map_lookup_elem(&offerings, &key);

	return index ? offered_at(*index) : NULL;
}

static __always_inline bool has_service_kind(const struct packet *p)
{
	return p->kind == KIND_TCP || p->kind == KIND_UDP || p->kind == KIND_TOO_BIG;
}

/* offering_of returns the packet's service, or NULL. */
static __always_inline const struct offering *offering_of(const struct packet *p)
{
	if (!has_service_kind(p))
		return NULL;
	return offering_at(&p->t.vip, p->t.vip_port_be, p->t.protocol);
}

static __always_inline bool offered_bit(__u32 i)
{
	__u32 word = i / 64;
	const __u64 *bits = bpf_map_lookup_elem(&offered_bits, &word);

	return bits && *bits >> i % 64 & 1;
}

/* may_be_offered is false of packets that are surely no service's. */
static __always_inline bool may_be_offered(const struct packet *p)
{
	return has_service_kind(p) && offered_bit(bpf_ntohs(p->t.vip_port_be)) &&
	       offered_bit(65536 + bpf_ntohs(p->t.vip.s6_addr16[7]));
}

/* vip_of returns an offering at the VIP of a packet without ports, or NULL. */
static __always_inline const struct offering *vip_of(const struct packet *p)
{
	return offering_at(&p->t.vip, 0, 0);
}
