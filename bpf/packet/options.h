/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* options.h: the transport header behind IPv4 options, or behind IPv6 hop-by-hop and destination
 * options and the header of a fragment that is a whole packet (RFC 6946). Nodes on the way serve
 * such packets as any other (RFC 7045 §2.1). read_at leaves them as KIND_EXTENSION or KIND_QUOTE, as they are rare;
 * the walk here ends after MAX_OPTION_HEADERS headers or MAX_OPTIONS bytes. No option
 * is read but a source route. */
#pragma once
#include "core/stall.h"
#include "packet/parse.h"

#define MAX_OPTION_HEADERS 8
#define MAX_OPTIONS 512 /* bytes */

enum ip4_options {
	IP4_STEPS = 20, /* over the most bytes of options (RFC 791 §3.1) */
	IP4_END = 0,
	IP4_NOP = 1,
	IP4_LOOSE_ROUTE = 131,
	IP4_STRICT_ROUTE = 137,
};

#define IP6_OFFSET 0xfff8 /* in the second word of a fragment header (RFC 8200 §4.5) */
#define IP6_MORE 1

/* The state of a walk over options, in a word that the verifier knows nothing of:
 *
 *   0-7     protocol of the header at the offset
 *   8-15    enum kind; KIND_OTHER: the walk goes on, or reached a transport header
 *   16      the frame ended first
 *   17      the walk is over
 *   32-63   offset in the frame of the next option or header */
enum walked {
	WALK_KIND_SHIFT = 8,
	WALK_CUT = 1 << 16,
	WALK_OVER = 1 << 17,
	WALK_AT_SHIFT = 32,
};

static __always_inline __u64 walk_word(__u32 at, __u8 next, enum kind kind, bool over)
{
	return (__u64)at << WALK_AT_SHIFT | next | kind << WALK_KIND_SHIFT | (over ? WALK_OVER : 0);
}

static __always_inline enum kind walked_kind(__u64 word)
{
	return word >> WALK_KIND_SHIFT & 0xff;
}

/* step4 is a step of a walk over the options of an IPv4 header, up to an offset. */
static __always_inline __u64 step4(void *data, void *end, __u64 word, __u32 stop)
{
	__u32 at = word >> WALK_AT_SHIFT, length;
	const __u8 *option = data + frame_offset(&at);

	if (at >= stop)
		return walk_word(stop, word, walked_kind(word), true);
	if (option + 2 > (const __u8 *)end)
		return word | WALK_OVER | WALK_CUT;
	if (option[0] == IP4_END)
		return walk_word(stop, word, walked_kind(word), true);
	if (option[0] == IP4_LOOSE_ROUTE || option[0] == IP4_STRICT_ROUTE)
		return walk_word(stop, word, KIND_SOURCE_ROUTE, true);
	length = option[1];
	if (option[0] == IP4_NOP) /* two at once, if there are two */
		length = 1 + (option[1] == IP4_NOP);
	else if (length < 2 || at + length > stop)
		return walk_word(stop, word, KIND_EXTENSION, true);
	return walk_word(at + length, word, walked_kind(word), false);
}

/* kind_before is the kind of a packet with this extension header, or KIND_OTHER: the walk goes on. */
static __always_inline enum kind kind_before(const __u8 *header, __u8 next, bool first, bool about)
{
	__u16 fragment = bpf_ntohs(*(const __be16 *)(header + 2));

	switch (next) {
	case IPPROTO_HOPOPTS:
		return first ? KIND_OTHER : KIND_EXTENSION; /* RFC 8200 §4.1 */
	case IPPROTO_DSTOPTS:
		return KIND_OTHER;
	case IPPROTO_FRAGMENT:
		return fragment & IP6_OFFSET || (fragment & IP6_MORE && !about) ? KIND_FRAGMENT
										: KIND_OTHER;
	case IPPROTO_ROUTING:
		return KIND_SOURCE_ROUTE;
	}
	return KIND_EXTENSION;
}

/* step6 is a step of a walk over the headers behind an IPv6 header. */
static __always_inline __u64 step6(void *data, void *end, __u64 word, __u32 stop, bool first,
				   bool about)
{
	__u32 at = word >> WALK_AT_SHIFT;
	const __u8 *header = data + frame_offset(&at);
	__u8 next = word;
	enum kind kind;

	if (!is_extension_header(next))
		return word | WALK_OVER;
	if (header + 8 > (const __u8 *)end)
		return word | WALK_OVER | WALK_CUT;
	kind = kind_before(header, next, first, about);
	at += next == IPPROTO_FRAGMENT ? 8 : 8 + header[1] * 8;
	if (at > stop && kind != KIND_SOURCE_ROUTE)
		kind = KIND_EXTENSION;
	return walk_word(at, header[0], kind, kind != KIND_OTHER);
}

/* A step of a walk. */
struct step {
	__u32 stop; /* offset behind the last byte that may be an option's */
	__u8 six;   /* IPv6 */
	__u8 first;
	__u8 about; /* in a quote, as a fragment's beginning shows the ports */
	__u8 zero;
};

/* begin_walk sets out at the packet at an offset of the frame, towards an offset that its options do not
 * pass. */
static __always_inline __u64 begin_walk(void *data, void *end, __u32 at, __u32 most, struct step *s)
{
	struct cursor c = { data + frame_offset(&at), end };
	struct iphdr *ip = c.pos;
	enum kind kind = KIND_OTHER;
	struct ipv6hdr *ip6;

	if ((void *)(ip + 1) > end)
		return WALK_OVER | WALK_CUT;
	if (ip->version == 4) {
		s->stop = at + ip->ihl * 4;
		at += sizeof(*ip);
		if (ip->frag_off & bpf_htons(s->about ? IP_OFFSET : IP_FRAGMENT))
			kind = KIND_FRAGMENT;
		if (s->stop > most || s->stop < at)
			kind = KIND_EXTENSION;
		return walk_word(at, ip->protocol, kind, kind == KIND_EXTENSION);
	}
	ip6 = take(&c, sizeof(*ip6));
	if (!ip6)
		return WALK_OVER | WALK_CUT;
	s->six = true;
	at += sizeof(*ip6);
	s->stop = most < at + MAX_OPTIONS ? most : at + MAX_OPTIONS;
	return walk_word(at, ip6->nexthdr, kind, false);
}

/* BEHIND makes the functions for a kind of program: the kinds have the frame at different places of
 * their context. They are functions of their own, so that the verifier looks at each once.
 *
 *   _step          a step of a walk
 *   _walk          a walk from a packet's IP header; returns its state
 *   _pass_options  of a packet of KIND_EXTENSION: sets its kind, its protocol, and where its transport
 *                  header is; or returns a negative number: the frame ended first
 *   _read_quote    of a packet of KIND_QUOTE: reads the ports
 *   _read_upper    reads the transport header, behind options or not, of a packet whose IP header
 *                  and the protocol behind it are read */
#define BEHIND(name, context)                                                                     \
	__noinline __u64 name##_step(struct context *ctx, __u64 word, const struct step *s)       \
	{                                                                                         \
		void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;         \
                                                                                                  \
		if (!s)                                                                           \
			return WALK_OVER | WALK_CUT;                                              \
		return s->six ? step6(data, end, word, s->stop, s->first, s->about)               \
			      : step4(data, end, word, s->stop);                                  \
	}                                                                                         \
                                                                                                  \
	__noinline __u64 name##_walk(struct context *ctx, __u32 at, __u32 most, __u32 about)      \
	{                                                                                         \
		struct step s = { .about = about };                                               \
		__u64 word = begin_walk((void *)(long)ctx->data, (void *)(long)ctx->data_end, at, \
					most, &s);                                                \
                                                                                                  \
		_Pragma("clang loop unroll(disable)") for (__u32 i = 0; i <= IP4_STEPS; i++)      \
		{                                                                                 \
			s.first = !i;                                                             \
			if (word & WALK_OVER || (s.six && i == MAX_OPTION_HEADERS))               \
				break;                                                            \
			word = name##_step(ctx, word, &s);                                        \
		}                                                                                 \
		if (s.six && !walked_kind(word) && !(word & WALK_CUT) &&                          \
		    is_extension_header(word))                                                    \
			word |= KIND_EXTENSION << WALK_KIND_SHIFT;                                \
		return word;                                                                      \
	}                                                                                         \
                                                                                                  \
	__noinline int name##_pass_options(struct context *ctx, struct packet *p)                 \
	{                                                                                         \
		__u64 walked;                                                                     \
                                                                                                  \
		if (!p)                                                                           \
			return -1;                                                                \
		walked = name##_walk(ctx, p->ip, p->ip + p->length, false);                       \
		if (walked & WALK_CUT)                                                            \
			return -1;                                                                \
		p->kind = walked_kind(walked);                                                    \
		if (p->kind != KIND_OTHER && p->kind != KIND_FRAGMENT)                            \
			return 0;                                                                 \
		p->l4 = walked >> 32;                                                             \
		p->options = p->l4 - p->ip - ip_bytes(p);                                         \
		set_word(&p->t.protocol, walked & 0xff);                                          \
		return 0;                                                                         \
	}                                                                                         \
                                                                                                  \
	__noinline int name##_read_quote(struct context *ctx, struct packet *p)                   \
	{                                                                                         \
		__u32 most, at;                                                                   \
		struct cursor c;                                                                  \
		__u64 walked;                                                                     \
                                                                                                  \
		if (!p)                                                                           \
			return MALFORMED;                                                         \
		most = p->l4 + p->length - head_bytes(p);                                         \
		walked = name##_walk(ctx, p->l4 + sizeof(struct icmp), most, true);               \
		at = walked >> 32;                                                                \
		if (walked & WALK_CUT || at + 2 * sizeof(__be16) > most)                          \
			return MALFORMED;                                                         \
		if (walked_kind(walked) != KIND_OTHER)                                            \
			return READ;                                                              \
		p->kind = KIND_OTHER;                                                             \
		c = frame_at(ctx, frame_offset(&at));                                             \
		return read_quote(&c, p, walked);                                                 \
	}                                                                                         \
                                                                                                  \
	__noinline int name##_read_upper(struct context *ctx, struct packet *p)                   \
	{                                                                                         \
		enum reading r = READ;                                                            \
		struct cursor c;                                                                  \
                                                                                                  \
		if (!p || (p->kind == KIND_EXTENSION && name##_pass_options(ctx, p)))             \
			return TRUNCATED;                                                         \
		c = frame_at(ctx, frame_offset(&p->l4));                                          \
		if (p->kind == KIND_OTHER)                                                        \
			r = read_transport(&c, p, p->t.protocol);                                 \
		return p->kind == KIND_QUOTE ? name##_read_quote(ctx, p) : (int)r;                \
	}

/* hides: the packet's facts are to be completed. */
static __always_inline bool hides(const struct packet *p)
{
	return p->kind == KIND_EXTENSION || p->kind == KIND_QUOTE;
}

BEHIND(xdp, xdp_md)
