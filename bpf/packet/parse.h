/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* parse.h: a packet of a service, parsed once into facts: flow, lengths, flags. Decisions read
 * the facts, so no pointer into the frame outlives a change of its head. */
#pragma once
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include "core/types.h"
#include "packet/cursor.h"
#include "packet/icmp_types.h"

/* length_of reads a length field and shows Linux 6.1 that it has 16 bits. */
static __always_inline __u32 length_of(__be16 field)
{
	__u32 n = bpf_ntohs(field);

	asm volatile("%0 &= 0xffff" : "+r"(n));
	return n;
}

/* frame_offset reads an offset of the frame that the verifier then knows no more of, so it
 * looks at the code that follows once for all offsets. */
static __always_inline __u64 frame_offset(const __u32 *at)
{
	__u64 offset = *(const volatile __u32 *)at;

	asm volatile("%0 &= 0x1fff" : "+r"(offset));
	return offset;
}

/* frame_at is a cursor at an offset of the frame. */
#define frame_at(ctx, at) \
	((struct cursor){ (void *)(long)(ctx)->data + (at), (void *)(long)(ctx)->data_end })

enum kind {
	KIND_OTHER, /* a protocol without ports, or with none that the LB reads */
	KIND_TCP,
	KIND_UDP,
	KIND_TOO_BIG,  /* ICMP: a packet of the flow was too big for a link */
	KIND_ECHO,     /* ICMP echo request; no flow */
	KIND_FRAGMENT, /* no ports, or not all of the packet */
	KIND_EXTENSION, /* IPv6 extension headers, or IPv4 options: packet/options.h looks behind some */
	KIND_QUOTE, /* as KIND_TOO_BIG, and the packet that it quotes has such headers */
	KIND_SOURCE_ROUTE,
};

enum tcp_flags {
	TCP_FIN = 1,
	TCP_SYN = 2,
	TCP_RST = 4,
	TCP_ACK = 16
};

/* The facts of a packet. Offsets are in the frame. */
struct packet {
	struct tuple t;
	__u64 hash; /* digest of t */
	__u32 seq;  /* TCP */
	__u32 ack;
	__u32 ip;	/* offset of its IP header */
	__u32 l4;	/* offset of its transport header */
	__u32 length;	/* from the IP header to the end, without an SRH inside */
	__u32 payload;	/* behind the transport header */
	__u16 mtu;	/* KIND_TOO_BIG: of that link */
	__u8 kind;	/* enum kind */
	__u8 family;	/* 4 or 6 */
	__u8 flags;	/* enum tcp_flags */
	__u8 class;	/* traffic class, or TOS */
	__u8 hop_limit; /* limit, or TTL */
	__u8 inserted;	/* an SRH is between IP and transport header (WIRE_INSERT) */
	__u8 reading;	/* LB: enum reading, of the frame's first packet */
	__u8 divisible; /* IPv4 without DF: a router may fragment it (RFC 791 §2.3) */
	__u16 options;	/* bytes of options between IP header and transport header */
	__u8 zero[4];
};

enum reading {
	READ,
	NOT_IP,	   /* or another version */
	TRUNCATED, /* the frame ends within the headers */
	IN_PART,   /* its first part ends before the IP header's length, but has the headers */
	MALFORMED, /* a transport header that does not fit */
};

enum direction {
	INWARD,	 /* from the client to the VIP */
	OUTWARD, /* from the VIP to the client */
};

/* copy_address moves 8 bytes at a time; given the alignment of in6_addr the compiler would move
 * 4. */
static __always_inline void copy_address(struct in6_addr *to, const struct in6_addr *from)
{
	((__u64 *)to)[0] = ((const __u64 *)from)[0];
	((__u64 *)to)[1] = ((const __u64 *)from)[1];
}

static __always_inline struct in6_addr mapped(__be32 v4)
{
	struct in6_addr a = {};

	a.s6_addr[10] = a.s6_addr[11] = 0xff;
	a.s6_addr32[3] = v4;
	return a;
}

/* copy_mapped writes a mapped address by 8 bytes at a time, as it is read. */
static __always_inline void copy_mapped(struct in6_addr *to, __be32 v4)
{
	((__u64 *)to)[0] = 0;
	((__u64 *)to)[1] = bpf_htonl(0xffff) | (__u64)v4 << 32;
}

static __always_inline bool is_mapped(const struct in6_addr *a)
{
	return !a->s6_addr32[0] && !a->s6_addr32[1] && a->s6_addr32[2] == bpf_htonl(0xffff);
}

/* is_extension_header: a next-header value that may precede a transport header (RFC 8200 §4;
 * 135, 139, 140 from IANA's list), and that of a fragment. */
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

/* Packets are parsed as inward packets; reverse makes the tuple of an outward packet. */
static __always_inline void reverse(struct tuple *t)
{
	struct in6_addr a = t->client;
	__be16 port = t->client_port_be;

	t->client = t->vip;
	t->vip = a;
	t->client_port_be = t->vip_port_be;
	t->vip_port_be = port;
}

/* set_word writes at once four bytes that are read at once: a load that needs two stores waits
 * until both, and all stores before them, are in the cache. */
static __always_inline void set_word(void *at, __u32 word)
{
	__builtin_memcpy(__builtin_assume_aligned(at, sizeof(word)), &word, sizeof(word));
}

static __always_inline void set_ports(struct tuple *t, __be16 client_be, __be16 vip_be)
{
	set_word(&t->client_port_be, client_be | (__u32)vip_be << 16);
}

/* read_ip6 reads an IPv6 header (RFC 8200 §3) and returns the next header. Bytes after the
 * payload are link padding. */
static __always_inline __u8 read_ip6(const struct ipv6hdr *ip, struct packet *p)
{
	p->family = 6;
	p->length = sizeof(*ip) + length_of(ip->payload_len);
	p->class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	p->hop_limit = ip->hop_limit;
	copy_address(&p->t.client, &ip->saddr);
	copy_address(&p->t.vip, &ip->daddr);
	if (is_extension_header(ip->nexthdr))
		p->kind = KIND_EXTENSION;
	return ip->nexthdr;
}

/* The flags and offset of an IPv4 header (RFC 791 §3.1). */
enum fragment_word {
	IP_DONT_FRAGMENT = 0x4000,
	IP_MORE_FRAGMENTS = 0x2000,
	IP_OFFSET = 0x1fff,
	IP_FRAGMENT = 0x3fff, /* more fragments, or an offset */
};

static __always_inline __u8 read_ip4(const struct iphdr *ip, struct packet *p)
{
	p->family = 4;
	p->length = length_of(ip->tot_len);
	p->class = ip->tos;
	p->hop_limit = ip->ttl;
	copy_mapped(&p->t.client, ip->saddr);
	copy_mapped(&p->t.vip, ip->daddr);
	p->divisible = !(ip->frag_off & bpf_htons(IP_DONT_FRAGMENT));
	if (ip->ihl != 5)
		p->kind = KIND_EXTENSION;
	else if (ip->frag_off & bpf_htons(IP_FRAGMENT))
		p->kind = KIND_FRAGMENT;
	return ip->protocol;
}

static __always_inline __u32 ip_bytes(const struct packet *p)
{
	return p->family == 6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/* head_bytes is the number of bytes before the transport header, without an SRH inside. */
static __always_inline __u32 head_bytes(const struct packet *p)
{
	return ip_bytes(p) + p->options;
}

/* read_tcp: RFC 9293 §3.1; a data offset that does not fit is malformed. */
static __always_inline enum reading read_tcp(struct cursor *c, struct packet *p)
{
	__u32 room = p->length - head_bytes(p);
	struct tcphdr *tcp;
	__be16 *ports = c->pos;
	__u32 header;

	if ((void *)(ports + 2) > c->end)
		return TRUNCATED;
	set_ports(&p->t, ports[0], ports[1]);
	p->kind = KIND_TCP;
	tcp = take(c, sizeof(*tcp));
	if (!tcp)
		return MALFORMED;
	header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > room)
		return MALFORMED;
	p->payload = room - header;
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->flags = ((__u8 *)tcp)[13];
	return READ;
}

static __always_inline enum reading read_udp(struct cursor *c, struct packet *p)
{
	__u32 room = p->length - head_bytes(p);
	struct udphdr *udp = take(c, sizeof(*udp));

	if (!udp)
		return TRUNCATED;
	set_ports(&p->t, udp->source, udp->dest);
	p->kind = KIND_UDP;
	if (bpf_ntohs(udp->len) < sizeof(*udp) || bpf_ntohs(udp->len) > room)
		return MALFORMED;
	p->payload = bpf_ntohs(udp->len) - sizeof(*udp);
	return READ;
}

/* read_quote reads the ports of the packet that an ICMP error quotes. That packet went the
 * other way, so its source is the error's destination. */
static __always_inline enum reading read_quote(struct cursor *c, struct packet *p, __u8 protocol)
{
	__be16 *ports = take(c, 2 * sizeof(*ports));

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return READ; /* KIND_OTHER */
	if (!ports)
		return MALFORMED;
	set_ports(&p->t, ports[1], ports[0]);
	set_word(&p->t.protocol, protocol);
	p->kind = KIND_TOO_BIG;
	return READ;
}

/* read_icmp6: packet too big and echo request. */
static __always_inline enum reading read_icmp6(struct cursor *c, struct packet *p)
{
	struct icmp *icmp = take(c, sizeof(*icmp));
	struct ipv6hdr *quoted;

	if (!icmp)
		return TRUNCATED;
	if (icmp->type == ICMP6_ECHO)
		p->kind = KIND_ECHO;
	if (icmp->type != ICMP6_TOO_BIG)
		return READ;
	quoted = take(c, sizeof(*quoted));
	if (!quoted || quoted->version != 6)
		return MALFORMED;
	p->mtu = bpf_ntohl(icmp->rest) > 0xffff ? 0xffff : bpf_ntohl(icmp->rest);
	p->t.client = quoted->daddr;
	p->t.vip = quoted->saddr;
	if (is_extension_header(quoted->nexthdr)) {
		p->kind = KIND_QUOTE;
		return READ;
	}
	return read_quote(c, p, quoted->nexthdr);
}

/* read_icmp4: fragmentation needed and echo request. */
static __always_inline enum reading read_icmp4(struct cursor *c, struct packet *p)
{
	struct icmp *icmp = take(c, sizeof(*icmp));
	struct iphdr *quoted;

	if (!icmp)
		return TRUNCATED;
	if (icmp->type == ICMP4_ECHO)
		p->kind = KIND_ECHO;
	if (icmp->type != ICMP4_UNREACHABLE || icmp->code != ICMP4_FRAG_NEEDED)
		return READ;
	quoted = take(c, sizeof(*quoted));
	if (!quoted || quoted->version != 4 || quoted->ihl < 5)
		return MALFORMED;
	p->mtu = bpf_ntohl(icmp->rest);
	p->t.client = mapped(quoted->daddr);
	p->t.vip = mapped(quoted->saddr);
	if (quoted->ihl != 5) {
		p->kind = KIND_QUOTE;
		return READ;
	}
	return read_quote(c, p, quoted->protocol);
}

/* read_transport reads the header after the IP header; c is at it. */
static __always_inline enum reading read_transport(struct cursor *c, struct packet *p,
						   __u8 protocol)
{
	set_word(&p->t.protocol, protocol);
	if (p->kind != KIND_OTHER)
		return READ; /* the kind already names a header before the transport header */
	if (protocol == IPPROTO_TCP)
		return read_tcp(c, p);
	if (protocol == IPPROTO_UDP)
		return read_udp(c, p);
	if (protocol == IPPROTO_ICMPV6 && p->family == 6)
		return read_icmp6(c, p);
	if (protocol == IPPROTO_ICMP && p->family == 4)
		return read_icmp4(c, p);
	return READ;
}

/* read_network reads the IP header at the cursor and returns the protocol that follows it, or a
 * negative number. */
static __always_inline int read_network(struct cursor *c, struct packet *p)
{
	__u8 *first = c->pos;

	if ((void *)(first + 1) > c->end)
		return -1;
	if (*first >> 4 == 6) {
		struct ipv6hdr *ip = take(c, sizeof(*ip));

		return ip ? read_ip6(ip, p) : -1;
	}
	if (*first >> 4 == 4) {
		struct iphdr *ip = take(c, sizeof(*ip));

		if (!ip || ip->ihl < 5 || bpf_ntohs(ip->tot_len) < sizeof(*ip))
			return -1;
		return read_ip4(ip, p);
	}
	return -1;
}

/* read_at reads the packet with its IP header at an offset of the frame. */
static __always_inline enum reading read_at(void *data, void *end, __u32 at, struct packet *p,
					    enum direction d)
{
	struct cursor c = { data + at, end };
	enum reading r;
	int protocol;

	__builtin_memset(p, 0, sizeof(*p));
	p->ip = at;
	protocol = read_network(&c, p);
	if (protocol < 0)
		return NOT_IP;
	p->l4 = at + ip_bytes(p);
	c.pos = data + frame_offset(&p->l4);
	r = read_transport(&c, p, protocol);
	if (d == OUTWARD)
		reverse(&p->t);
	return r == READ && data + at + p->length > end ? IN_PART : r;
}

/* opens: the packet is the first of a connection. */
static __always_inline bool opens(const struct packet *p)
{
	return p->kind == KIND_TCP &&
	       (p->flags & (TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN)) == TCP_SYN;
}
