/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* auth.h: the authentication of signals. A signal carries a 64-bit tag in the interface
 * identifier of its sender's address, where it takes no extra byte:
 *
 *   SipHash-2-4(key, flow (40 bytes), sender's locator (8), segments (16 each))
 *
 * over the segments in the order of the SRH (last segment first), which hold the
 * function, generation, flags, key id and report. A packet without an SRH has one
 * segment, its destination. A reduced SRH lacks the first segment, which a later receiver
 * cannot know; the first entry of an inserted SRH is where the tag is.
 *
 * A node without keys sends signals untagged and accepts them without a check. */
#pragma once
#include "packet/route.h"

struct signal_key {
	struct key key;
	__u32 id; /* 0: there is none */
	__u32 zero;
};

/* The key that this node signs with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct signal_key);
} signing SEC(".maps");

/* The keys that LBs sign with, by id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct signal_key);
} farm_keys SEC(".maps");

static __always_inline const struct signal_key *signing_key(void)
{
	__u32 zero = 0;
	const struct signal_key *k = bpf_map_lookup_elem(&signing, &zero);

	return k && k->id ? k : NULL;
}

static __always_inline const struct key *farm_key(__u32 id)
{
	const struct signal_key *k = bpf_map_lookup_elem(&farm_keys, &id);

	return k && k->id ? &k->key : NULL;
}

static __always_inline struct sip tag_start(const struct key *key, const struct tuple *t,
					    __be64 sender_be)
{
	struct key k = *key;
	struct sip s = sip_start(&k);

	sip_tuple(&s, t);
	sip_word(&s, sender_be);
	return s;
}

static __always_inline void tag_segment(struct sip *s, const void *segment)
{
	const __u64 *half = segment;

	sip_word(s, half[0]);
	sip_word(s, half[1]);
}

static __always_inline __be64 tag_end(struct sip *s, __u32 segments)
{
	return sip_end(s, TUPLE_WORDS + 1 + 2 * segments);
}

/* tag_of_one is the tag of a signal with one segment. */
static __always_inline __be64 tag_of_one(const struct key *key, const struct tuple *t,
					 const struct sid *to)
{
	struct sip s = tag_start(key, t, self.locator_be);

	tag_segment(&s, to);
	return tag_end(&s, 1);
}

/* The state of a walk over segments. */
struct signing {
	struct sip s;
	const struct route *r;
	__u32 begin;
};

/* sign_segment is the callback of bpf_loop. */
static long sign_segment(__u64 i, struct signing *w)
{
	tag_segment(&w->s, &w->r->list[(w->begin + i) % MAX_SEGMENTS]);
	return 0;
}

/* route_tag is the tag of n segments, in the order of the list. This and authentic are
 * functions of their own, so that the verifier looks at them once; hence the tests for NULL,
 * which never happens. */
__noinline __u64 route_tag(const struct key *key, const struct packet *p, const struct route *r,
			   __u32 begin, __u32 n)
{
	struct signing w = { .r = r, .begin = begin };

	if (!key || !p || !r)
		return 0;
	w.s = tag_start(key, &p->t, r->signer_be);
	bpf_loop(n, sign_segment, &w, 0);
	return tag_end(&w.s, n);
}

/* authentic: the packet in ctx, opened as sr and p, carries the tag that key gives. r gets its
 * segments. */
__noinline int authentic(struct xdp_md *ctx, const struct sr *sr, const struct packet *p,
			 const struct key *key, struct route *r)
{
	__u32 at = SRH_AT + sizeof(struct srh), n;

	if (!sr || !p || !key || !r)
		return 0;
	n = sr->signed_segments;
	if (n > MAX_SEGMENTS)
		return 0;
	if (!sr->srh_bytes) {
		r->list[0] = sr->sid;
		n = 1;
	} else if (n && bpf_xdp_load_bytes(ctx, at, r->list, list_bytes(n))) {
		return 0;
	}
	r->signer_be = sr->sender_be;
	return route_tag(key, p, r, 0, n) == sr->tag;
}
