/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* route.h: segments, as they go into a packet or came out of one. */
#pragma once
#include "packet/srv6.h"

/* Where a packet goes: its segments, and the neighbour that is towards the first
 * one. They stand as an SRH has them, last first, so that they are written at once;
 * around them is room for the packet's destination and the sender, which an inserted
 * SRH has, too. The verifier does not see that a late begin has few segments:
 * hence beyond. */
struct route {
	__u32 n;
	__u8 mac[6];
	__u8 wire; /* enum wire */
	__u8 zero;
	struct sid list[MAX_SEGMENTS];
	struct sid beyond[MAX_SEGMENTS];
	struct ipv6hdr own; /* of the packet into which they are inserted */
	__be64 signer_be;   /* locator of who signs them */
	__u32 reason;	    /* LB: enum counter, of sending it */
	__u32 none;
};

#define FIRST_SEGMENT (MAX_SEGMENTS - 2)
#define MAX_IN_ROUTE (MAX_SEGMENTS - 2)

/* segment_of returns where segment i of a route stands. */
static __always_inline struct sid *segment_of(struct route *r, __u32 i)
{
	return &r->list[(FIRST_SEGMENT - i) % MAX_SEGMENTS];
}

/* What one server is sent. */
struct destination {
	__u32 server;
	__u32 reason;	/* enum counter */
	__u16 function; /* enum function */
	__u16 generation;
	__u32 zero;
};

/* list_bytes is the size of 1 to MAX_SEGMENTS segments, where the verifier can see it. */
static __always_inline __u32 list_bytes(__u32 n)
{
	n--;
	asm volatile("%0 &= %1" : "+r"(n) : "i"(MAX_SEGMENTS - 1));
	return (n + 1) * sizeof(struct sid);
}

/* route_bytes is what n segments cost (docs/wire.md). */
static __always_inline __u32 route_bytes(__u32 n, __u8 wire)
{
	if (wire == WIRE_INSERT)
		return sizeof(struct srh) + (n + 2) * sizeof(struct sid);
	if (n == 1)
		return sizeof(struct ipv6hdr);
	return sizeof(struct ipv6hdr) + sizeof(struct srh) + (n - 1) * sizeof(struct sid);
}
