/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* outer_headers.h: the headers that a tc program puts before a packet. */
#pragma once
#include "packet/srv6.h"

/* The headers before the packet, written in a piece; on the stack the IP header is
 * aligned. */
struct front {
	__u16 unused;
	__u8 to[ETH_ALEN];
	__u8 from[ETH_ALEN];
	__be16 proto;
	struct ipv6hdr ip;
};

#define FRONT_BYTES (ETH_BYTES + (__u32)sizeof(struct ipv6hdr))
