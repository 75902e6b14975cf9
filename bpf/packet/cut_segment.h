/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* cut_segment.h: a TCP segment cut short. The receiver acknowledges its beginning, and the sender repeats
 * the rest. The sum of the lost bytes leaves the checksum, so that a wrong checksum stays wrong. */
#pragma once
#include "packet/range_sum.h"
#include "packet/rewrite.h"

#define CUT_TO 512 /* header and payload */

/* cut_headers writes the length and, with the sum of the bytes that go, the checksums. */
static __always_inline bool cut_headers(struct xdp_md *ctx, const struct packet *p, __u16 now,
					__s64 gone)
{
	struct cursor c = frame_at(ctx, ETH_BYTES);
	struct iphdr *ip = take(&c, sizeof(*ip));
	struct tcphdr *tcp;
	__u16 *flags;
	__u16 before;

	c = frame_at(ctx, frame_offset(&p->l4));
	tcp = take(&c, sizeof(*tcp));
	if (!ip || !tcp)
		return false;
	ip->tot_len = bpf_htons(now);
	ip->check = replace_word(ip->check, bpf_htons(p->length), bpf_htons(now));
	flags = (void *)&tcp->ack_seq + sizeof(tcp->ack_seq);
	before = *flags;
	tcp->fin = 0; /* it comes with the rest */
	tcp->check = replace_word(tcp->check, before, *flags);
	tcp->check = replace_word(tcp->check, ~folded(gone), 0);
	tcp->check = replace_word(tcp->check, bpf_htons(p->length), bpf_htons(now));
	return true;
}

/* cut_segment cuts a longer segment of IPv4, which is first in the frame, to CUT_TO bytes. A
 * function of its own, as it is rare. */
__noinline int cut_segment(struct xdp_md *ctx, struct packet *p)
{
	struct range gone = { .ctx = ctx };
	__u32 bytes;

	if (!p)
		return FRAME_TRUNCATED;
	bytes = head_bytes(p) + CUT_TO;
	if (p->family != 4 || p->length <= bytes)
		return FRAME_TRUNCATED;
	gone.at = ETH_BYTES + bytes;
	gone.end = ETH_BYTES + p->length;
	if (!sum_range(&gone) || !cut_headers(ctx, p, bytes, gone.sum) ||
	    bpf_xdp_adjust_tail(ctx, (int)(ETH_BYTES + bytes - bpf_xdp_get_buff_len(ctx))))
		return FRAME_TRUNCATED;
	p->flags &= ~TCP_FIN;
	p->payload -= p->length - bytes;
	p->length = bytes;
	return REWRITTEN;
}
