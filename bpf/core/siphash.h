/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* siphash.h: SipHash-2-4 (Aumasson and Bernstein, 2012) of whole 8-byte words, such as a flow's
 * five, and mixing functions without a secret. Go's twins are in policy/. */
#pragma once
#include "core/types.h"

struct key {
	__u64 k0; /* little endian, as the paper reads them */
	__u64 k1;
};

static __always_inline __u64 rotl(__u64 x, int bits)
{
	return x << bits | x >> (64 - bits);
}

/* The state of a hash over any number of words. */
struct sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline struct sip sip_start(const struct key *key)
{
	return (struct sip){
		0x736f6d6570736575ULL ^ key->k0,
		0x646f72616e646f6dULL ^ key->k1,
		0x6c7967656e657261ULL ^ key->k0,
		0x7465646279746573ULL ^ key->k1,
	};
}

static __always_inline void sip_round(struct sip *s)
{
	/* clang-format off */
	s->v0 += s->v1; s->v1 = rotl(s->v1, 13); s->v1 ^= s->v0; s->v0 = rotl(s->v0, 32);
	s->v2 += s->v3; s->v3 = rotl(s->v3, 16); s->v3 ^= s->v2;
	s->v0 += s->v3; s->v3 = rotl(s->v3, 21); s->v3 ^= s->v0;
	s->v2 += s->v1; s->v1 = rotl(s->v1, 17); s->v1 ^= s->v2; s->v2 = rotl(s->v2, 32);
	/* clang-format on */
}

static __always_inline void sip_word(struct sip *s, __u64 word)
{
	s->v3 ^= word;
	sip_round(s);
	sip_round(s);
	s->v0 ^= word;
}

static __always_inline __u64 sip_end(struct sip *s, __u32 words)
{
	sip_word(s, (__u64)words * 8 << 56);
	s->v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#define TUPLE_WORDS ((int)sizeof(struct tuple) / 8)

static __always_inline void sip_tuple(struct sip *s, const struct tuple *t)
{
	const __u64 *word = (const void *)t;

	for (int i = 0; i < TUPLE_WORDS; i++)
		sip_word(s, word[i]);
}

/* mix is the finaliser of SplitMix64 (Steele et al., 2014). */
static __always_inline __u64 mix(__u64 x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

/* flow_label is constant for a flow, equal at every node, and spreads flows over equal-cost
 * paths (RFC 6437, RFC 6438); 0 means "no label". */
static __always_inline __u32 flow_label(const struct tuple *t)
{
	const __u64 *word = (const void *)t;
	__u64 h = 0;
	__u32 label;

	for (int i = 0; i < TUPLE_WORDS; i++)
		h += word[i];
	label = h * 0x9e3779b97f4a7c15ULL >> 44;
	return label |
	       (label - 1) >> 31; /* 1 for 0; a branch would be another way for the verifier */
}

/* generation_of tells the connections of a five-tuple apart: 16 bits of the client's initial
 * sequence number, never 0. */
static __always_inline __u16 generation_of(__u32 isn)
{
	__u32 g = (isn * 0x9e3779b1U) >> 16;

	return g | (g - 1) >> 31; /* 1 for 0 */
}
