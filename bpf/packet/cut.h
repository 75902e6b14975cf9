/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* cut.h: a TCP segment cut short. The receiver acknowledges its beginning, and the sender repeats
 * the rest. The sum of the lost bytes leaves the checksum, so that a wrong one stays wrong. */
#pragma once
#include "packet/rewrite.h"

#define CUT_TO 512 /* header and payload */
#define CHUNK 64   /* bytes that are summed at a time */

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

/* cut_headers writes the length and, with the sum of the bytes that go, the checksums. */
static __always_inline bool cut_headers(struct xdp_md *ctx, __u16 was, __u16 now, __s64 gone)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct {
		struct iphdr ip;
		struct tcphdr tcp;
	} *h = take(&c, sizeof(*h));
	__u16 *flags;
	__u16 before;

	if (!h)
		return false;
	h->ip.tot_len = bpf_htons(now);
	h->ip.check = replace_word(h->ip.check, bpf_htons(was), bpf_htons(now));
	flags = (void *)&h->tcp.ack_seq + sizeof(h->tcp.ack_seq);
	before = *flags;
	h->tcp.fin = 0; /* it comes with the rest */
	h->tcp.check = replace_word(h->tcp.check, before, *flags);
	h->tcp.check = replace_word(h->tcp.check, ~folded(gone), 0);
	h->tcp.check = replace_word(h->tcp.check, bpf_htons(was), bpf_htons(now));
	return true;
}

/* cut_segment cuts a longer segment of IPv4, which is first in the frame, to CUT_TO bytes. A
 * function of its own, as it is rare. */
__noinline int cut_segment(struct xdp_md *ctx, struct packet *p)
{
	const __u32 bytes = sizeof(struct iphdr) + CUT_TO;
	struct range gone = { .ctx = ctx, .at = ETH_BYTES + bytes };

	if (!p || p->family != 4 || p->length <= bytes)
		return FRAME_TRUNCATED;
	gone.end = ETH_BYTES + p->length;
	bpf_loop(p->length / CHUNK, sum_chunk, &gone, 0);
	if (gone.at < gone.end || !cut_headers(ctx, p->length, bytes, gone.sum) ||
	    bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + bytes - bpf_xdp_get_buff_len(ctx))))
		return FRAME_TRUNCATED;
	p->flags &= ~TCP_FIN;
	p->payload -= p->length - bytes;
	p->length = bytes;
	return REWRITTEN;
}
