/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* rewriter.h: writes other bytes, as many, in the place of a pattern in the payload, wherever it is
 * (MOST_REPLACED times a packet), and corrects the checksum (RFC 1624). */
#pragma once
#include "edge/rewrite_end.h"
#include "edge/payload_search.h"

enum {
	MOST_REPLACED = 8,
	AROUND_BYTES = 20, /* a pattern and the bytes to even offsets around it */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SLOTS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct rewriter_setting);
} rewriter_settings SEC(".maps");

/* correct_sum changes the checksum of TCP or UDP. */
static __always_inline void correct_sum(struct xdp_md *ctx, const struct packet *p, __u32 delta)
{
	struct cursor c = frame_at(ctx, frame_offset(&p->l4));

	if (p->kind == KIND_TCP) {
		struct tcphdr *tcp = take(&c, sizeof(*tcp));

		if (tcp)
			tcp->check = changed_sum(tcp->check, delta);
		return;
	}
	struct udphdr *udp = take(&c, sizeof(*udp));

	if (udp && udp->check)
		udp->check = changed_sum(udp->check, delta) ?: 0xffff;
}

static __always_inline const struct rewriter_setting *
rewriter_setting_of(const struct node_state *s)
{
	__u32 slot = s->slot;

	return bpf_map_lookup_elem(&rewriter_settings, &slot);
}

/* change_payload writes the bytes into the payload's copy at an offset, and both versions of those
 * around, from an even offset of the checksum's words on. */
static __always_inline void change_payload(struct scan *b, const struct rewriter_setting *set,
					   __u32 at)
{
	__u32 even = at & (SCAN_BYTES - 2);

	__builtin_memcpy(b->before, &b->payload[even], AROUND_BYTES);
	for (__u32 i = 0; i < MAX_PATTERN_BYTES; i++)
		if (i < set->pattern.length)
			b->payload[(at & (SCAN_BYTES - 1)) + i] = set->to[i];
	__builtin_memcpy(b->after, &b->payload[even], AROUND_BYTES);
}

/* replace_bytes writes the bytes at an offset of the payload; false: the frame has no such place. A
 * function of its own, so that the verifier looks at it once. */
__noinline bool replace_bytes(struct xdp_md *ctx, __u32 at)
{
	const struct rewriter_setting *set;
	struct node_state *s = node_state();
	struct scan *b = scan();
	__u32 length;

	set = s ? rewriter_setting_of(s) : NULL;
	if (!b || !set)
		return false;
	change_payload(b, set, at);
	length = size_up_to(set->pattern.length, MAX_PATTERN_BYTES);
	if (bpf_xdp_store_bytes(ctx, b->at + at, (void *)set->to, length))
		return false;
	correct_sum(ctx, &s->packet,
		    bpf_csum_diff((void *)b->before, AROUND_BYTES, (void *)b->after, AROUND_BYTES,
				  0));
	return true;
}

SEC("xdp")
int node_rewriter(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	const struct rewriter_setting *set;
	struct scan *b = scan();
	__u32 at = 0;

	if (!s || !b)
		return XDP_ABORTED;
	set = rewriter_setting_of(s);
	if (!set || !load_payload(ctx, &s->packet, b))
		return next_function(ctx, s);
	for (int i = 0; i < MOST_REPLACED; i++) {
		at = seek_pattern(b, &set->pattern, at);
		if (at >= SCAN_BYTES || !replace_bytes(ctx, at))
			break;
		at += set->pattern.length;
		s->changed = 1;
	}
	return next_function(ctx, s);
}
