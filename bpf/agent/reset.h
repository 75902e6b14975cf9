/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* reset.h: the RST of a last candidate with a full accept queue. Linux would drop the SYN
 * in silence, even with tcp_abort_on_overflow. */
#pragma once
#include "packet/rst.h"

/* reset_for is the RST for a SYN; it acknowledges the SYN and its payload (RFC 9293
 * §3.10.7.1). */
static __always_inline struct rst reset_for(const struct packet *p)
{
	return (struct rst){
		.from = p->t.vip,
		.to = p->t.client,
		.from_port_be = p->t.vip_port_be,
		.to_port_be = p->t.client_port_be,
		.ack = p->seq + 1 + p->payload,
		.flags = TCP_RST | TCP_ACK,
		.label = flow_label(&p->t),
	};
}
