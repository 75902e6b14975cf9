/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* vxlan.h: the layout of a packet in VXLAN (RFC 7348 §5). */
#pragma once
#include "packet/parse.h"

#define VXLAN_PORT 4789
#define VXLAN_VNI_VALID 0x08000000
#define FIRST_PORT 0xc000 /* the dynamic ports (RFC 7348 §5) */

/* The headers behind the outer IP header. */
struct vxlan {
	struct udphdr udp;
	__be32 flags;
	__be32 vni_be;
	struct ethhdr inner;
	__u16 zero; /* behind the headers; for sums */
};

#define VXLAN_BYTES 30

/* All headers, written in a piece; on the stack the IP header is aligned. */
struct vxlan6 {
	__u16 unused;
	struct ethhdr eth;
	struct ipv6hdr ip;
	struct vxlan rest;
} __attribute__((aligned(8)));

struct vxlan4 {
	__u16 unused;
	struct ethhdr eth;
	struct iphdr ip;
	struct vxlan rest;
} __attribute__((aligned(8)));
