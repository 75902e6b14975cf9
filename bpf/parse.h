/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* parse.h: a cursor over a packet, one bounds check a header. Each function
 * returns the header and moves past it, or NULL at the packet's end. */
#pragma once
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include "types.h"

struct cursor {
	void *pos;
	void *end;
};

/* take returns the next n bytes and moves past them, or NULL at packet end. */
static __always_inline void *take(struct cursor *c, __u64 n)
{
	void *p = c->pos;

	if (p + n > c->end)
		return NULL;
	c->pos = p + n;
	return p;
}

/* take_ethernet returns the link header if IPv6 follows it directly. */
static __always_inline struct ethhdr *take_ethernet(struct cursor *c)
{
	struct ethhdr *eth = take(c, sizeof(*eth));

	if (!eth || eth->h_proto != bpf_htons(ETH_P_IPV6))
		return NULL;
	return eth;
}

/* take_ipv6 returns an IPv6 header whose payload lies inside the packet
 * (RFC 8200 §3); bytes after the payload are link padding and stay. */
static __always_inline struct ipv6hdr *take_ipv6(struct cursor *c)
{
	struct ipv6hdr *ip = take(c, sizeof(*ip));

	if (!ip || ip->version != 6)
		return NULL;
	if (c->pos + bpf_ntohs(ip->payload_len) > c->end)
		return NULL;
	return ip;
}

/* A TCP segment and the facts of it that decisions need. */
struct segment {
	struct ipv6hdr *ip;
	struct tcphdr *tcp;
	__u32 payload; /* bytes */
};

/* take_tcp completes s, whose ip is set, or returns false: a header that is
 * cut short or a data offset that does not fit (RFC 9293 §3.1). */
static __always_inline bool take_tcp(struct cursor *c, struct segment *s)
{
	__u32 length = bpf_ntohs(s->ip->payload_len);
	__u32 header;

	s->tcp = take(c, sizeof(*s->tcp));
	if (!s->tcp)
		return false;
	header = s->tcp->doff * 4;
	if (header < sizeof(*s->tcp) || header > length)
		return false;
	s->payload = length - header;
	return true;
}

/* opens tells the first packet of a connection. */
static __always_inline bool opens(const struct tcphdr *tcp)
{
	return tcp->syn && !tcp->ack && !tcp->rst && !tcp->fin;
}

static __always_inline struct tuple tuple_inward(const struct segment *s)
{
	struct tuple t = {
		.client = s->ip->saddr,
		.vip = s->ip->daddr,
		.client_port_be = s->tcp->source,
		.vip_port_be = s->tcp->dest,
		.protocol = IPPROTO_TCP,
	};

	return t;
}

static __always_inline struct tuple tuple_outward(const struct segment *s)
{
	struct tuple t = {
		.client = s->ip->daddr,
		.vip = s->ip->saddr,
		.client_port_be = s->tcp->dest,
		.vip_port_be = s->tcp->source,
		.protocol = IPPROTO_TCP,
	};

	return t;
}

/* is_extension_header tells the next-header values behind which a transport
 * header may hide (RFC 8200 §4; 135, 139, 140 from IANA's list). */
static __always_inline bool is_extension_header(__u8 next)
{
	switch (next) {
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_FRAGMENT:
	case IPPROTO_AH:
	case IPPROTO_DSTOPTS:
	case 135: /* Mobility */
	case 139: /* Host Identity Protocol */
	case 140: /* Shim6 */
		return true;
	}
	return false;
}
