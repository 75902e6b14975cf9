/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* complete.h: whether the table of flows has every live connection of the services with sockets
 * in this namespace. While it has, an offer of a flow without an entry needs no look-up in the
 * kernel's socket table (listener.h).
 *
 *   INCOMPLETE  a live connection may have no entry: the daemon has just started or offers other
 *               services; an entry was evicted; there was no room for an entry; or a packet went to
 *               the stack by which the kernel may open a connection unseen (dt, a SYN cookie of
 *               an offer long ago)
 *   SOUGHT      the same, and the daemon is about to look at all sockets (adopt.h)
 *   COMPLETE    it has looked, and nothing of the above came in between
 *
 * A connection that packets past this agent opened, as from a client on this host, is unknown
 * until the daemon looks again, within a minute or so. Until then an offer of its five-tuple is
 * decided as any other: if this server takes it, the stack sends its challenge all the same. A
 * connection is over once both sides were seen to close, though the kernel may still repeat its
 * FIN; and a connection of TCP Fast Open lives from its client's acknowledgement on. */
#pragma once
#include "core/types.h"

volatile __u32 conns_completeness SEC(".data.complete") = CONNS_INCOMPLETE;

/* conns_may_lack makes the table incomplete. The cache line is written once, not by each packet of
 * a flood. */
static __always_inline void conns_may_lack(void)
{
	if (conns_completeness)
		conns_completeness = CONNS_INCOMPLETE;
}

static __always_inline bool conns_have_all(void)
{
	return conns_completeness == CONNS_COMPLETE;
}
