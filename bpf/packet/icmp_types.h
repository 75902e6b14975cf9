/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* icmp_types.h: the header of an ICMP message, and its types and codes. */
#pragma once
#include "core/types.h"

/* linux/icmp.h needs half of the C library */
struct icmp {
	__u8 type;
	__u8 code;
	__sum16 check;
	__be32 rest; /* PTB: MTU (16 bits in IPv4); echo: identifier, number */
};

enum icmp_types {
	ICMP4_ECHO_REPLY = 0,
	ICMP4_UNREACHABLE = 3, /* code 4: fragmentation needed (RFC 1191 §4) */
	ICMP4_ECHO = 8,
	ICMP4_TIME_EXCEEDED = 11,
	ICMP4_PARAMETER = 12,
	ICMP6_UNREACHABLE = 1, /* RFC 4443 §3.1 */
	ICMP6_TOO_BIG = 2,     /* RFC 4443 §3.2 */
	ICMP6_TIME_EXCEEDED = 3,
	ICMP6_PARAMETER = 4, /* RFC 4443 §3.4, the last error */
	ICMP6_ECHO = 128,    /* the first that is no error */
	ICMP6_ECHO_REPLY = 129,
	ICMP6_DISCOVERY = 133, /* the first of five messages of neighbour discovery (RFC 4861 §4) */
	ICMP6_REDIRECT = 137,  /* the last */
};

#define ICMP4_PORT 3 /* of ICMP4_UNREACHABLE */
#define ICMP4_FRAG_NEEDED 4
#define ICMP6_PORT 4 /* of ICMP6_UNREACHABLE */
