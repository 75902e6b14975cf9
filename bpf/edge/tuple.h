/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* tuple.h: the flow of a packet at the edge: TCP and UDP by their ports, ICMP echo by its
 * identifier, and an ICMP error by the packet that it quotes. Both directions of a flow have
 * the same tuple and so the same entry: they cannot part. The tuple has the client network's end first, by the
 * packet's way; so a flow between two services has another tuple to each. */
#pragma once
#include "packet/options.h"
#include "packet/ip_header.h"

#define KIND_ERROR KIND_TOO_BIG /* at the edge: any ICMP error, with the tuple that it quotes */

/* read_hidden completes the facts of a packet, as read_at left it, that has options. */
static __always_inline enum reading read_hidden(struct xdp_md *ctx, struct packet *p,
						enum reading r)
{
	if (!hides(p) || r != READ)
		return r;
	r = xdp_read_upper(ctx, p);
	return r == READ && (void *)(long)ctx->data + p->ip + p->length >
				       (void *)(long)ctx->data_end
		       ? IN_PART
		       : r;
}

/* is_echo: an ICMP message is an echo request or its answer. */
static __always_inline bool is_echo(__u8 type, __u8 family)
{
	if (family == 6)
		return type == ICMP6_ECHO || type == ICMP6_ECHO_REPLY;
	return type == ICMP4_ECHO || type == ICMP4_ECHO_REPLY;
}

/* read_echo gives an echo request or its answer its identifier as both ports. */
static __always_inline bool read_echo(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, frame_offset(&p->l4));
	struct icmp *icmp = take(&c, sizeof(*icmp));
	__be16 id;

	if (!icmp || !is_echo(icmp->type, p->family))
		return false;
	id = *(__be16 *)&icmp->rest;
	set_ports(&p->t, id, id);
	p->kind = KIND_ECHO;
	return true;
}

/* is_error: the ICMP message quotes a packet of a flow (RFC 792, RFC 4443 §3). A redirect is no
 * router's to pass on. */
static __always_inline bool is_error(const struct icmp *icmp, __u8 family)
{
	if (family == 6)
		return icmp->type >= ICMP6_UNREACHABLE && icmp->type <= ICMP6_PARAMETER;
	return icmp->type == ICMP4_UNREACHABLE || icmp->type == ICMP4_TIME_EXCEEDED ||
	       icmp->type == ICMP4_PARAMETER;
}

/* read_quoted_ip reads the addresses of the packet that an error quotes, which went the other way: its
 * source is the error's destination. */
static __always_inline bool read_quoted_ip(struct cursor *c, struct packet *p)
{
	if (p->family == 6) {
		struct ipv6hdr *ip = take(c, sizeof(*ip));

		if (!ip || ip->version != 6)
			return false;
		copy_address(&p->t.client, &ip->daddr);
		copy_address(&p->t.vip, &ip->saddr);
		return true;
	}
	struct iphdr *ip = take(c, sizeof(*ip));

	if (!ip || ip->version != 4)
		return false;
	copy_mapped(&p->t.client, ip->daddr);
	copy_mapped(&p->t.vip, ip->saddr);
	return true;
}

/* read_error gives an ICMP error the tuple of the packet that it quotes, in the direction of the
 * error. The ports may be behind options. */
static __always_inline bool read_error(struct xdp_md *ctx, struct packet *p)
{
	struct cursor c = frame_at(ctx, frame_offset(&p->l4));
	struct icmp *icmp = take(&c, sizeof(*icmp));
	__be16 *ports;
	__u64 walked;
	__u8 protocol;
	__u32 at;

	if (!icmp || !is_error(icmp, p->family) || !read_quoted_ip(&c, p))
		return false;
	walked = xdp_walk(ctx, p->l4 + sizeof(*icmp), p->l4 + p->length - head_bytes(p), true);
	if (walked & WALK_CUT || walked_kind(walked) != KIND_OTHER)
		return false;
	at = walked >> WALK_AT_SHIFT;
	protocol = walked;
	c = frame_at(ctx, frame_offset(&at));
	ports = c.pos;
	if ((void *)(ports + 4) > c.end)
		return false;
	if (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP)
		set_ports(&p->t, ports[1], ports[0]);
	else if (protocol == (p->family == 6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP) &&
		 is_echo(*(__u8 *)ports, p->family))
		set_ports(&p->t, ports[2], ports[2]);
	else
		return false;
	set_word(&p->t.protocol, protocol);
	p->kind = KIND_ERROR;
	return true;
}

/* shows_flow: the packet, as read_at read it inward, has a flow, and p->t names both ends with ports. */
static __always_inline bool shows_flow(struct xdp_md *ctx, struct packet *p)
{
	if (p->kind == KIND_TCP || p->kind == KIND_UDP || p->kind == KIND_ERROR)
		return true;
	if (p->kind != KIND_OTHER && p->kind != KIND_ECHO)
		return false;
	if (p->t.protocol != (p->family == 6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP))
		return false;
	return read_echo(ctx, p) || read_error(ctx, p);
}

/* flow_of is the tuple of a flow, the same in both directions: with the client network's end first. */
static __always_inline struct tuple flow_of(const struct packet *p, bool inward)
{
	struct tuple t = p->t;

	if (inward)
		reverse(&t);
	return t;
}
