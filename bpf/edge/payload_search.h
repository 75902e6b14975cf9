/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* payload_search.h: a search for bytes in the payload of a TCP segment or a datagram, for the functions that
 * read it. A pattern that is cut by the end of a segment is not found. */
#pragma once
#include "edge/function.h"

enum {
	SCAN_BYTES = 2048, /* of a payload: a power of two, above the MTU of XDP on most links */
	SCAN_BEYOND = 32,  /* so that a look at the last bytes stays in the buffer */
};

/* The payload of the packet that a CPU has. */
struct scan {
	__u8 payload[SCAN_BYTES + SCAN_BEYOND];
	__u8 before[24]; /* the bytes around a change, before and after it */
	__u8 after[24];
	__u32 at;     /* of the payload, in the frame */
	__u32 length; /* of the payload */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scan);
} scan_of_cpu SEC(".maps");

static __always_inline struct scan *scan(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scan_of_cpu, &zero);
}

/* size_up_to shows Linux 6.1 that a size is from 1 to `most`, a constant power of two. */
static __always_inline __u32 size_up_to(__u32 n, __u32 most)
{
	n--;
	asm volatile("%0 &= %1" : "+r"(n) : "i"(most - 1));
	return n + 1;
}

/* load_payload copies the payload; false: there is none. */
static __always_inline bool load_payload(struct xdp_md *ctx, const struct packet *p, struct scan *b)
{
	__u32 length = p->payload;

	if (p->kind != KIND_TCP && p->kind != KIND_UDP)
		return false;
	b->at = p->kind == KIND_TCP ? p->ip + p->length - length : p->l4 + sizeof(struct udphdr);
	if (!length)
		return false;
	length = size_up_to(length < SCAN_BYTES ? length : SCAN_BYTES, SCAN_BYTES);
	b->length = length;
	return !bpf_xdp_load_bytes(ctx, b->at, b->payload, length);
}

/* A search for a pattern from an offset on. */
struct seek {
	__u64 value[2]; /* the pattern's bytes as they lie in memory, and zeros */
	__u64 mask[2];
	__u32 from;
	__u32 found; /* its offset, or SCAN_BYTES */
};

/* seek_at is the callback of bpf_loop: 1 ends it. */
static long seek_at(__u64 i, struct seek *s)
{
	__u32 at = (s->from + (__u32)i) & (SCAN_BYTES - 1);
	struct scan *b = scan();
	const __u64 *bytes;

	if (!b)
		return 1;
	bytes = (const void *)&b->payload[at];
	if ((bytes[0] ^ s->value[0]) & s->mask[0] || (bytes[1] ^ s->value[1]) & s->mask[1])
		return 0;
	s->found = at;
	return 1;
}

/* seek_pattern returns the offset of a pattern in the payload, from an offset on, or SCAN_BYTES. */
static __always_inline __u32 seek_pattern(const struct scan *b, const struct pattern *p, __u32 from)
{
	struct seek s = {
		.value = { p->value[0], p->value[1] },
		.mask = { p->mask[0], p->mask[1] },
		.from = from,
		.found = SCAN_BYTES,
	};

	if (p->length && from + p->length <= b->length)
		bpf_loop(b->length - p->length - from + 1, seek_at, &s, 0);
	return s.found;
}
