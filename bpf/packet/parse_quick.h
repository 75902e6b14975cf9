/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* parse_quick.h: a shorter way to the facts of most packets: a whole segment or datagram right behind
 * its IP header. The facts are those of read_at (packet/parse.h), in fewer stores. Any other
 * packet is left to read_at. */
#pragma once
#include "packet/ip_header.h"

/* read_quick_tcp reads a TCP header that begins room bytes before the packet's end. */
static __always_inline bool read_quick_tcp(const struct tcphdr *tcp, struct packet *p, __s32 room)
{
	__s32 header = tcp->doff * 4;

	if (header < (__s32)sizeof(*tcp) || header > room)
		return false;
	p->payload = room - header;
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->flags = ((const __u8 *)tcp)[13];
	p->kind = KIND_TCP;
	return true;
}

static __always_inline bool read_quick_udp(const struct udphdr *udp, struct packet *p, __s32 room)
{
	__s32 length = length_of(udp->len);

	if (length < (__s32)sizeof(*udp) || length > room)
		return false;
	p->payload = length - sizeof(*udp);
	*(__u64 *)&p->seq = 0;
	p->kind = KIND_UDP;
	return true;
}

/* read_quick_transport reads the header behind an IP header of so many bytes. */
static __always_inline bool read_quick_transport(struct cursor c, struct packet *p, __u8 protocol,
						 __u32 ip_bytes)
{
	__s32 room = p->length - ip_bytes;
	const struct tcphdr *tcp = c.pos;

	if ((void *)(tcp + 1) > c.end) /* of a short datagram, too */
		return false;
	p->ip = ETH_BYTES;
	p->l4 = ETH_BYTES + ip_bytes;
	*(__u64 *)&p->t.client_port_be = *(const __u32 *)tcp | (__u64)protocol << 32;
	if (protocol == IPPROTO_TCP)
		return read_quick_tcp(tcp, p, room);
	return protocol == IPPROTO_UDP && read_quick_udp(c.pos, p, room);
}

static __always_inline bool read_quick6(struct cursor c, struct packet *p)
{
	struct ipv6hdr *ip = take(&c, sizeof(*ip));

	if (!ip || ip->version != 6)
		return false;
	p->length = sizeof(*ip) + length_of(ip->payload_len);
	p->family = 6;
	p->class = ip->priority << 4 | ip->flow_lbl[0] >> 4;
	p->hop_limit = ip->hop_limit;
	copy_address(&p->t.client, &ip->saddr);
	copy_address(&p->t.vip, &ip->daddr);
	return (void *)ip + p->length <= c.end &&
	       read_quick_transport(c, p, ip->nexthdr, sizeof(*ip));
}

static __always_inline bool read_quick4(struct cursor c, struct packet *p)
{
	struct iphdr *ip = take(&c, sizeof(*ip));

	if (!ip || *(const __u8 *)ip != 0x45 || ip->frag_off & bpf_htons(IP_FRAGMENT))
		return false;
	p->length = length_of(ip->tot_len);
	p->family = 4;
	p->class = ip->tos;
	p->hop_limit = ip->ttl;
	p->divisible = !(ip->frag_off & bpf_htons(IP_DONT_FRAGMENT));
	copy_mapped(&p->t.client, ip->saddr);
	copy_mapped(&p->t.vip, ip->daddr);
	return (void *)ip + p->length <= c.end &&
	       read_quick_transport(c, p, ip->protocol, sizeof(*ip));
}

/* read_quick_ip reads the packet at the cursor, of a frame of this type; false: another packet. Facts that
 * it does not know are 0. */
static __always_inline bool read_quick_ip(struct cursor c, struct packet *p, __be16 type)
{
	__u64 *facts = (void *)&p->mtu;

	facts[0] = facts[1] = 0; /* from mtu on; READ is 0 */
	if (type == bpf_htons(ETH_P_IPV6))
		return read_quick6(c, p);
	return type == bpf_htons(ETH_P_IP) && read_quick4(c, p);
}

_Static_assert(offsetof(struct packet, mtu) + 16 == sizeof(struct packet), "two words from mtu on");
