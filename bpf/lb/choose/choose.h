/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* choose.h: which servers a flow may go to, in order of preference. A dispatch is one
 * file here with its function, its number in enum dispatch, and its row of DISPATCHES.
 * The rest of the LB asks for the candidates and for the row's tracking, never for the
 * dispatch.
 *
 * A function gets the packet, with its digest, and the service; a clock is in
 * core/clock.h. The candidates stay as they are while the packet is processed. With
 * TRACK_FLOWS the packets of a flow get equal candidates as long as the service's table
 * stands: a list that does not fit one packet is continued by position (list.h). */
#pragma once
#include "lb/choose/hunt.h"
#include "lb/choose/single.h"
#include "lb/choose/stateless.h"

enum dispatch {
	DISPATCH_SINGLE = 0,
	DISPATCH_HUNT = 1,
	DISPATCH_STATELESS = 2,
};

/* The LB's treatment of a service's flows. */
enum tracking {
	TRACK_UNKNOWN, /* no such dispatch: packets are dropped */
	TRACK_NONE,    /* each packet goes to the first candidate in dt; no entry, no signals */
	TRACK_CLIENT,  /* new flows go to the first candidate in dt; client packets make entries */
	TRACK_FLOWS,   /* SYNs are offered to the candidates; signals make and remove entries */
};

#define DISPATCHES(ROW)                                   \
	ROW(DISPATCH_SINGLE, TRACK_CLIENT, choose_single) \
	ROW(DISPATCH_HUNT, TRACK_FLOWS, choose_hunt)      \
	ROW(DISPATCH_STATELESS, TRACK_NONE, choose_stateless)

static __always_inline enum tracking tracking_of(const struct service *svc)
{
	switch (svc->dispatch) {
#define ROW(dispatch, tracking, function) \
	case dispatch:                    \
		return tracking;
		DISPATCHES(ROW)
#undef ROW
	}
	return TRACK_UNKNOWN;
}

/* is_signalled: the service's servers have agents that signal about its flows. */
static __always_inline bool is_signalled(const struct service *svc)
{
	enum tracking tracking = tracking_of(svc);

	return tracking == TRACK_FLOWS ||
	       (tracking == TRACK_CLIENT && svc->recovery == RECOVERY_AGENTS);
}

/* choose returns the bucket with the candidates of a packet's flow (enum bucket_layout). */
static __always_inline __u64 choose(const struct packet *p, const struct service *svc)
{
	switch (svc->dispatch) {
#define ROW(dispatch, tracking, function) \
	case dispatch:                    \
		return function(p, svc);
		DISPATCHES(ROW)
#undef ROW
	}
	return 0;
}
