/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* siphash.h: SipHash-2-4 (Aumasson and Bernstein, 2012) of a flow, and the
 * cheap mixing that needs no secret. Go's twin is policy.Hash. */
#pragma once
#include "types.h"

struct key {
	__u64 k0; /* little endian, as the paper reads them */
	__u64 k1;
};

static __always_inline __u64 rotl(__u64 x, int bits)
{
	return x << bits | x >> (64 - bits);
}

#define SIPROUND(v0, v1, v2, v3)                                               \
	do {                                                                   \
		v0 += v1; v1 = rotl(v1, 13); v1 ^= v0; v0 = rotl(v0, 32);      \
		v2 += v3; v3 = rotl(v3, 16); v3 ^= v2;                         \
		v0 += v3; v3 = rotl(v3, 21); v3 ^= v0;                         \
		v2 += v1; v1 = rotl(v1, 17); v1 ^= v2; v2 = rotl(v2, 32);      \
	} while (0)

/* siphash of the 40 bytes of a flow: five words and the length. */
static __always_inline __u64 siphash(const struct key *key, const struct tuple *t)
{
	const __u64 *word = (const void *)t;
	__u64 v0 = 0x736f6d6570736575ULL ^ key->k0;
	__u64 v1 = 0x646f72616e646f6dULL ^ key->k1;
	__u64 v2 = 0x6c7967656e657261ULL ^ key->k0;
	__u64 v3 = 0x7465646279746573ULL ^ key->k1;
	__u64 last = (__u64)sizeof(*t) << 56;

	for (int i = 0; i < (int)sizeof(*t) / 8; i++) {
		v3 ^= word[i];
		SIPROUND(v0, v1, v2, v3);
		SIPROUND(v0, v1, v2, v3);
		v0 ^= word[i];
	}
	v3 ^= last;
	SIPROUND(v0, v1, v2, v3);
	SIPROUND(v0, v1, v2, v3);
	v0 ^= last;
	v2 ^= 0xff;
	SIPROUND(v0, v1, v2, v3);
	SIPROUND(v0, v1, v2, v3);
	SIPROUND(v0, v1, v2, v3);
	SIPROUND(v0, v1, v2, v3);
	return v0 ^ v1 ^ v2 ^ v3;
}

/* mix is the finaliser of SplitMix64 (Steele et al., 2014). */
static __always_inline __u64 mix(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

/* flow_label is constant for a flow, the same at every node, and spreads flows
 * over equal-cost paths (RFC 6437, RFC 6438); 0 would say "no label". */
static __always_inline __u32 flow_label(const struct tuple *t)
{
	const __u64 *word = (const void *)t;
	__u64 h = 0;
	__u32 label;

	for (int i = 0; i < (int)sizeof(*t) / 8; i++)
		h = mix(h ^ word[i]);
	label = h >> 44;
	return label ? label : 1;
}

/* generation tells the connections of one five-tuple apart: 16 bits of the
 * client's initial sequence number, never 0. */
static __always_inline __u16 generation_of(__u32 isn)
{
	__u16 g = (isn * 0x9e3779b1U) >> 16;

	return g ? g : 1;
}
