/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* clamp.h: the MSS that a server offers (RFC 9293 §3.7.1), lowered so that the
 * client's segments have room for our headers. */
#pragma once
#include "packet/rewrite.h"

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_MSS 2
#define MSS_BYTES 4
#define TCP_CHECK 16 /* offset of the checksum in the header */

/* The state of a walk over the options of a TCP header. */
struct options {
	__u8 byte[64]; /* TCP_OPTIONS of them; a power of two, to mask an index */
	__u32 at;
	__u32 length;
	bool found;
};

/* next_option is the callback of bpf_loop; 1 ends the walk. */
static long next_option(__u64 i, struct options *o)
{
	__u8 kind = o->byte[o->at % 64], length = o->byte[(o->at + 1) % 64];

	if (o->at + MSS_BYTES > o->length || kind == OPTION_END)
		return 1;
	if (kind == OPTION_NOP) {
		o->at++;
		return 0;
	}
	o->found = kind == OPTION_MSS && length == MSS_BYTES;
	if (o->found || kind == OPTION_MSS || length < 2)
		return 1;
	o->at += length;
	return 0;
}

/* lower_mss writes the smaller MSS into an option at an offset of the frame's TCP header. */
static __always_inline int lower_mss(struct xdp_md *ctx, __u32 tcp, __u32 at, __u16 was, __u16 now)
{
	__be16 old = bpf_htons(was), new = bpf_htons(now);
	__sum16 check;

	if (bpf_xdp_load_bytes(ctx, tcp + TCP_CHECK, &check, sizeof(check)))
		return 0;
	bpf_xdp_store_bytes(ctx, tcp + at + 2, &new, sizeof(new));
	if (at % 2) { /* its bytes belong to two words, so the sum has them swapped */
		old = was;
		new = now;
	}
	check = replace_word(check, old, new);
	bpf_xdp_store_bytes(ctx, tcp + TCP_CHECK, &check, sizeof(check));
	return 1;
}

/* search_mss is clamp_mss for any order of options. A function of its own for the verifier. */
__noinline int search_mss(struct xdp_md *ctx, const struct packet *p, __u32 most)
{
	struct options o = {};
	__u32 tcp, length;
	__u16 was;

	if (!p)
		return 0;
	tcp = ETH_BYTES + head_bytes(p);
	length = p->length - p->payload - head_bytes(p) - sizeof(struct tcphdr);
	if (length < MSS_BYTES || length > TCP_OPTIONS)
		return 0;
	if (bpf_xdp_load_bytes(ctx, tcp + sizeof(struct tcphdr), o.byte, length))
		return 0;
	o.length = length;
	bpf_loop(TCP_OPTIONS, next_option, &o, 0);
	was = o.byte[(o.at + 2) % 64] << 8 | o.byte[(o.at + 3) % 64];
	if (!o.found || was <= most)
		return 0;
	return lower_mss(ctx, tcp, sizeof(struct tcphdr) + o.at, was, most);
}

/* clamp_mss lowers the MSS of a SYN-ACK to that of a packet of mtu bytes. Its IP header starts
 * the frame. Options that cannot be parsed stay. The MSS is the first option of all common
 * stacks. */
static __always_inline bool clamp_mss(struct xdp_md *ctx, const struct packet *p, __u32 mtu)
{
	__u32 most = mtu - ip_bytes(p) - sizeof(struct tcphdr);
	struct cursor c = frame_at(ctx, frame_offset(&p->l4));
	struct {
		struct tcphdr tcp;
		__u8 kind;
		__u8 length;
		__be16 mss;
	} *h;
	__be16 was;

	if (most > 0xffff)
		return false;
	h = take(&c, sizeof(*h));
	if (!h || h->tcp.doff * 4 < sizeof(*h) || h->kind != OPTION_MSS || h->length != MSS_BYTES)
		return search_mss(ctx, p, most);
	was = h->mss;
	if (bpf_ntohs(was) <= most)
		return false;
	h->mss = bpf_htons(most);
	h->tcp.check = replace_word(h->tcp.check, was, h->mss);
	return true;
}
