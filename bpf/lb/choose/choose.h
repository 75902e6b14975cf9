/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* choose.h: which servers a flow may go to, in order of preference. A dispatch is one
 * file here with its function, its number in enum dispatch, and its row of DISPATCHES.
 * The rest of the LB asks for the candidates and for the row's tracking, never for the
 * dispatch.
 *
 * A function gets the packet, with its digest, and the service; a clock is in
 * core/clock.h. The candidates stay as they are while the packet is processed. With
 * TRACK_FLOWS the packets of a flow get equal candidates as long as the service's table
 * stands: a list that does not fit a packet is continued by position (segment_list.h). */
#pragma once
#include "lb/choose/hunt.h"
#include "lb/choose/least.h"
#include "lb/choose/queue.h"
#include "lb/choose/single.h"
#include "lb/choose/stateless.h"
#include "lb/choose/turn.h"
#include "lb/choose/two.h"
#include "lb/choose/weighted.h"

enum dispatch {
	DISPATCH_SINGLE = 0,
	DISPATCH_HUNT = 1,
	DISPATCH_STATELESS = 2,
	DISPATCH_LEARNED = 3,
	DISPATCH_LEARNED_LITERAL = 4,
	DISPATCH_LEARNED_AGES = 5,
	DISPATCH_LEARNED2 = 6,
	DISPATCH_LSQ = 7,
	DISPATCH_LSQ2 = 8,
	DISPATCH_SED = 9,
	DISPATCH_SED2 = 10,
	DISPATCH_ECMP = 11,
	DISPATCH_WCMP = 12,
	DISPATCH_RR = 13,
	DISPATCH_AWCMP = 14,
	DISPATCH_WRR_FEEDBACK = 15,
	DISPATCH_GSQ2 = 16,
};

/* The LB's treatment of a service's flows. */
enum tracking {
	TRACK_UNKNOWN, /* no such dispatch: packets are dropped */
	TRACK_NONE,    /* each packet goes to the first candidate in dt; no entry, no signals */
	TRACK_CLIENT,  /* new flows go to the first candidate in dt; client packets make entries */
	TRACK_FLOWS,   /* SYNs are offered to the candidates; signals make and remove entries */
};

/* ROW: how a mode's flows are tracked, and its function. SEATED: a mode with TRACK_CLIENT that chooses
 * among the seats of its service's tally. It has single's buckets besides, for flows without an entry,
 * and its function gets whether the packet begins a flow. */
#define DISPATCHES(ROW, SEATED)                               \
	ROW(DISPATCH_SINGLE, TRACK_CLIENT, choose_single)     \
	ROW(DISPATCH_HUNT, TRACK_FLOWS, choose_hunt)          \
	ROW(DISPATCH_STATELESS, TRACK_NONE, choose_stateless) \
	SEATED(DISPATCH_LEARNED, choose_least)                \
	SEATED(DISPATCH_LEARNED_LITERAL, choose_least)        \
	SEATED(DISPATCH_LEARNED_AGES, choose_least)           \
	SEATED(DISPATCH_LEARNED2, choose_two)                 \
	SEATED(DISPATCH_LSQ, choose_least)                    \
	SEATED(DISPATCH_LSQ2, choose_two)                     \
	SEATED(DISPATCH_SED, choose_least)                    \
	SEATED(DISPATCH_SED2, choose_two)                     \
	SEATED(DISPATCH_ECMP, choose_weighted)                \
	SEATED(DISPATCH_WCMP, choose_weighted)                \
	SEATED(DISPATCH_RR, choose_in_turn)                   \
	SEATED(DISPATCH_AWCMP, choose_weighted)               \
	SEATED(DISPATCH_WRR_FEEDBACK, choose_in_turn)         \
	SEATED(DISPATCH_GSQ2, choose_queue)

/* All rows' tracking in a word, TRACKING_BITS each, so that the verifier follows one way for all. */
enum {
	TRACKING_BITS = 2,
	TRACKINGS = 64 / TRACKING_BITS
};

static __always_inline enum tracking tracking_of(const struct service *svc)
{
#define ROW(dispatch, tracking, function) | (__u64)tracking << dispatch * TRACKING_BITS
#define SEATED(dispatch, function) ROW(dispatch, TRACK_CLIENT, function)
	const __u64 all = 0 DISPATCHES(ROW, SEATED);
#undef ROW
#undef SEATED
	__u32 dispatch = svc->dispatch;

	if (dispatch >= TRACKINGS)
		return TRACK_UNKNOWN;
	return all >> dispatch * TRACKING_BITS & ((1 << TRACKING_BITS) - 1);
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
#define SEATED(dispatch, function)
		DISPATCHES(ROW, SEATED)
#undef ROW
#undef SEATED
	}
	return choose_single(p, svc);
}

/* bucket_of is choose in a function of its own, for the verifier. */
__noinline __u64 bucket_of(const struct packet *p, const struct service *svc)
{
	return p && svc ? choose(p, svc) : 0;
}

/* choose_new is choose for a packet without an entry, where client packets make entries. */
static __always_inline __u64 choose_new(const struct packet *p, const struct service *svc,
					bool begins)
{
	switch (svc->dispatch) {
#define ROW(dispatch, tracking, function)
#define SEATED(dispatch, function) \
	case dispatch:             \
		return function(p, svc, begins);
		DISPATCHES(ROW, SEATED)
#undef ROW
#undef SEATED
	}
	return choose_single(p, svc);
}
