/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* range_sum.h: the sum of a range of the frame, of any length, for Internet checksums. */
#pragma once
#include "core/types.h"

#define CHUNK 64 /* bytes that are summed at a time */

/* A sum over a range of the frame. */
struct range {
	struct xdp_md *ctx;
	__u32 at;
	__u32 end;
	__s64 sum;
	__u8 chunk[CHUNK];
};

/* sum_chunk is the callback of bpf_loop; 1 ends the walk. */
static long sum_chunk(__u64 i, struct range *r)
{
	__u32 last = r->end - r->at - 1; /* of the bytes left */

	if (r->at >= r->end)
		return 1;
	if (last >= CHUNK)
		last = CHUNK - 1;
	asm volatile("%0 &= %1" : "+r"(last) : "i"(CHUNK - 1));
	__builtin_memset(r->chunk, 0, sizeof(r->chunk));
	if (bpf_xdp_load_bytes(r->ctx, r->at, r->chunk, last + 1))
		return 1;
	r->sum = bpf_csum_diff(NULL, 0, (void *)r->chunk, CHUNK, r->sum);
	r->at += CHUNK;
	return 0;
}

/* sum_range adds a range to its sum; false: the frame ends before. */
static __always_inline bool sum_range(struct range *r)
{
	bpf_loop((r->end - r->at) / CHUNK + 1, sum_chunk, r, 0);
	return r->at >= r->end;
}
