// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* twin.bpf.c: test only. Runs the integer decisions of the data plane on batches of
 * inputs, so that Go's twins can be compared with them for millions of steps. Not part of
 * the product. */
#include "core/types.h"
#include "agent/accept/accept.h"
#include "agent/load/pending.h"
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
	ACT_ACCEPTS,
	ACT_PENDING_ADD,
	ACT_PENDING_REMOVE,
	ACT_PENDING_COUNT,
};

struct accept_in {
	enum act act;
	__u32 value; /* ACT_ACCEPTS: busy; ACT_PENDING_COUNT: cores */
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
struct offering tested;

/* In a map of its own, as struct load holds a lock. */
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
	case ACT_ACCEPTS:
		out->answer = accepts(&tested, l, in->value) == WILLING;
		break;
	case ACT_PENDING_ADD:
		pending_add(l, epoch);
		break;
	case ACT_PENDING_REMOVE: /* of a connection that was added at now_ns */
		pending_remove(l, epoch);
		break;
	default:
		out->answer = pending_count(l, epoch, in->value);
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
