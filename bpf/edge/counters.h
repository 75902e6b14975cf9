/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* counters.h: the edge LB's counters, by which every exit of its programs is explained.
 * docs/counters.md has a line for each. */
#pragma once
#include "core/count.h"

enum counter {
	EDGE_PASS_NOT_IP,
	EDGE_PASS_OTHER_HOST,
	EDGE_PASS_OWN_ADDRESS,
	EDGE_PASS_NOT_EDGE,
	EDGE_PASS_NOT_TUNNEL,
	EDGE_PASS_TO_ROUTER,
	EDGE_STEER,
	EDGE_FLOW_BEGUN,
	EDGE_FLOW_MOVED,
	EDGE_UPDATE_LEARNED,
	EDGE_UPDATE_KNOWN,
	EDGE_DROP_MALFORMED,
	EDGE_DROP_FRAGMENT,
	EDGE_DROP_PROTOCOL,
	EDGE_DROP_UNSOLICITED,
	EDGE_DROP_NO_INSTANCE,
	EDGE_DROP_TABLE_FULL,
	EDGE_DROP_TOO_BIG,
	EDGE_DROP_NO_HEADROOM,
	EDGE_DROP_MALFORMED_TUNNEL,
	EDGE_DROP_STRANGER,
	EDGE_DROP_IMPOSSIBLE_ID,
	EDGE_DROP_NO_UPDATE,
	EDGE_DROP_UNKNOWN_FLOW,
	EDGE_DROP_WRONG_INSTANCE,
	EDGE_DROP_CONFLICT,
	EDGE_DROP_CONGESTED,
	COUNTERS,
};

_Static_assert(COUNTERS <= MAX_COUNTERS, "more counters than a record has room for");

/* Keeps the enum, and with it the names, in the object's BTF. */
const volatile enum counter counters_end = COUNTERS;
