/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* link_addresses.h: other unicast link addresses than the link's own, for which this host takes frames: those of
 * macvlans above it, such as VRRP's (RFC 9568 §7.3), as user space finds them. And the addresses of frames
 * that are for none of them, with packets for us all the same, for an operator. */
#pragma once
#include "core/types.h"

#define MAX_SERVED 64
#define STRANGERS 16

/* The key is a link address as a frame begins with it; the edge LB has the side in the upper 16 bits. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SERVED);
	__type(key, __u64);
	__type(value, __u8);
} served SEC(".maps");

struct stranger {
	__u64 address; /* as a key of served: of the last frame */
	__u64 packets;
};

/* By the last bits of an address: any number of addresses costs no more room. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, STRANGERS);
	__type(key, __u32);
	__type(value, struct stranger);
} strangers SEC(".maps");

/* takes: this host takes frames for an address. Else the address is noted if the packet is ours. */
__noinline bool takes(__u64 address, bool ours)
{
	__u32 i = address >> 40 & (STRANGERS - 1);
	__u64 key = address;
	struct stranger *s;

	if (bpf_map_lookup_elem(&served, &key))
		return true;
	s = ours ? bpf_map_lookup_elem(&strangers, &i) : NULL;
	if (s) {
		s->address = address;
		s->packets++;
	}
	return false;
}
