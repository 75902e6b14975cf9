/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* route.h: the segments that a packet gets or came with. */
#pragma once
#include "packet/srv6.h"

/* The segments of a packet, and the neighbour towards the first of them. The list has the order
 * of an SRH, last segment first, so that it is written at once; beside the segments is room for
 * the packet's destination and the sender, which an inserted SRH has, too. The verifier does
 * not see that a late begin has few segments: hence beyond. */
struct route {
	__u32 n;
	__u8 mac[6];
	__u8 wire; /* enum wire */
	__u8 zero;
	struct sid list[MAX_SEGMENTS];
	struct sid beyond[MAX_SEGMENTS];
	struct ipv6hdr own; /* of the packet that they are inserted into */
	__be64 signer_be;   /* locator of the node that signs them */
	__u32 reason;	    /* LB: enum counter, of sending it */
	__u32 none;
};

#define FIRST_SEGMENT (MAX_SEGMENTS - 2)
#define MAX_IN_ROUTE (MAX_SEGMENTS - 2)

/* segment_of returns segment i of a route. */
static __always_inline struct sid *segment_of(struct route *r, __u32 i)
{
	return &r->list[(FIRST_SEGMENT - i) % MAX_SEGMENTS];
}

/* A server, and the function that a packet asks of it. */
struct destination {
	__u32 server;
	__u32 reason;	/* enum counter */
	__u16 function; /* enum function */
	__u16 generation;
	__u32 zero;
};

/* list_bytes is the size of 1 to MAX_SEGMENTS segments, in a form that shows the verifier its
 * bounds. */
static __always_inline __u32 list_bytes(__u32 n)
{
	n--;
	asm volatile("%0 &= %1" : "+r"(n) : "i"(MAX_SEGMENTS - 1));
	return (n + 1) * sizeof(struct sid);
}

/* route_bytes is the number of bytes that n segments add (docs/design/wire.md). */
static __always_inline __u32 route_bytes(__u32 n, __u8 wire)
{
	if (wire == WIRE_INSERT)
		return sizeof(struct srh) + (n + 2) * sizeof(struct sid);
	if (n == 1)
		return sizeof(struct ipv6hdr);
	return sizeof(struct ipv6hdr) + sizeof(struct srh) + (n - 1) * sizeof(struct sid);
}
