/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* closing.h: the segments that end a connection, for functions that keep its state. A FIN counts if its
 * numbers are near those of its sender's segments before. A RST counts if its number is that which
 * the other end waits for, which alone makes that end close (RFC 5961 §3.2); and the next segment of
 * the client network takes it back, as an end that was reset sends none. So a forged RST ends nothing. */
#pragma once
#include "edge/types.h"
#include "packet/parse.h"

enum {
	NEAR = 1 << 24, /* above the windows of hosts; a blind guess comes so near once in 128 */
};

/* end_of is the sequence number after a segment. */
static __always_inline __u32 end_of(const struct packet *p)
{
	return p->seq + p->payload + !!(p->flags & TCP_SYN) + !!(p->flags & TCP_FIN);
}

/* follow notes a segment of a side that is no RST; false: its numbers are far from those before. */
static __always_inline bool follow(struct tcp_side *side, const struct packet *p)
{
	__u32 end = end_of(p), ahead = end - side->next;

	if (side->next && ahead + NEAR > 2 * NEAR)
		return false;
	if (ahead && (!side->next || ahead <= NEAR))
		side->next = end;
	if (p->flags & TCP_ACK && side->ack != p->ack)
		side->ack = p->ack;
	return true;
}

/* is_reset: a RST of a side has the number that the other end waits for: that after the side's last
 * segment, or that of the other end's last acknowledgement; or it refuses the other end's SYN. */
static __always_inline bool is_reset(const struct packet *p, const struct tcp_side *side,
				     const struct tcp_side *other)
{
	if (!side->next && p->flags & TCP_ACK)
		return p->ack == other->next;
	return (side->next && p->seq == side->next) || (other->ack && p->seq == other->ack);
}

/* begins_again: the client network's SYN, or its answer to a SYN, uses the ports again. The world's SYN
 * alone may be forged. */
static __always_inline bool begins_again(const struct packet *p)
{
	return p->kind == KIND_TCP && (p->flags & (TCP_SYN | TCP_FIN | TCP_RST)) == TCP_SYN;
}
