// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* twin.bpf.c: test only. Runs the integer decisions of the data plane on a
 * batch of inputs at a time, so that Go's twins of them can be held against it
 * for millions of steps. Not part of the product. */
#include "core/types.h"
#include "agent/accept.h"
#include "core/digest.h"
#include "core/siphash.h"

#define BATCH 4096

struct hash_in {
	struct key key;
	struct tuple t;
	__u64 word;
	__u32 isn;
	__u32 zero;
};

struct hash_out {
	__u64 sip;
	__u64 digest;
	__u64 mixed;
	__u32 label;
	__u32 generation;
};

enum act {
	ACT_OFFER,
	ACT_EXPECT,
	ACT_ARRIVE,
	ACT_EXPECTED,
};

struct accept_in {
	enum act act;
	__u32 value; /* ACT_OFFER: busy; ACT_EXPECTED: cores */
	__u64 now_ns;
};

struct accept_out {
	__u32 answer;
	__u32 threshold;
};

struct hash_in hash_ins[BATCH];
struct hash_out hash_outs[BATCH];
struct accept_in accept_ins[BATCH];
struct accept_out accept_outs[BATCH];
struct offering offered;

/* The lock inside struct load belongs into a map of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load);
} state SEC(".maps");

static long hash_one(__u32 i, void *unused)
{
	const struct hash_in *in = &hash_ins[i % BATCH];
	struct hash_out *out = &hash_outs[i % BATCH];
	struct key key = in->key;
	struct tuple t = in->t;
	struct sip s = sip_start(&key);

	sip_tuple(&s, &t);
	out->sip = sip_end(&s, TUPLE_WORDS);
	out->digest = digest(&t);
	out->mixed = mix(in->word);
	out->label = flow_label(&t);
	out->generation = generation_of(in->isn);
	return 0;
}

static long accept_one(__u32 i, void *unused)
{
	const struct accept_in *in = &accept_ins[i % BATCH];
	struct accept_out *out = &accept_outs[i % BATCH];
	__u32 epoch = epoch_of(in->now_ns), zero = 0;
	struct load *l = bpf_map_lookup_elem(&state, &zero);

	if (!l)
		return 1;
	out->answer = 0;
	switch (in->act) {
	case ACT_OFFER:
		out->answer = accepts(&offered, l, in->value);
		break;
	case ACT_EXPECT:
		expect(l, epoch);
		break;
	case ACT_ARRIVE: /* of a connection that was expected at now_ns */
		arrive(l, epoch);
		break;
	default:
		out->answer = expected(l, epoch, in->value);
	}
	out->threshold = l->threshold;
	return 0;
}

SEC("syscall")
int twin_hash(void *ctx)
{
	return bpf_loop(BATCH, hash_one, NULL, 0) != BATCH;
}

SEC("syscall")
int twin_accept(void *ctx)
{
	return bpf_loop(BATCH, accept_one, NULL, 0) != BATCH;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
