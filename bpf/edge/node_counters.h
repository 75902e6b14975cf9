/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* node_counters.h: a datapath node's counters, by which every exit of its programs and of its
 * functions is explained. docs/counters.md has a line for each. */
#pragma once
#include "core/count.h"

enum counter {
	NODE_PASS_NOT_TUNNEL,
	NODE_PASS_TO_ROUTER,
	NODE_DIRECT,
	NODE_RETURNED,
	NODE_FLOW_MOVED,
	NODE_FLOW_UNKEPT,
	NODE_OWNED,
	NODE_NOT_MINE,
	NODE_ALIVE,
	NODE_REFUSED,
	NODE_UNBOUND,
	NODE_NAT_BOUND,
	NODE_FIREWALL_ADMITTED,
	NODE_USER_GIVEN,
	NODE_USER_BACK,
	NODE_DROP_MALFORMED_TUNNEL,
	NODE_DROP_FRAGMENT,
	NODE_DROP_STRANGER,
	NODE_DROP_IMPOSSIBLE_ID,
	NODE_DROP_MALFORMED,
	NODE_DROP_CONGESTED,
	NODE_DROP_NO_HEADROOM,
	NODE_DROP_NO_FUNCTION,
	NODE_DROP_NO_LB,
	NODE_DROP_LIMIT_REFUSAL,
	NODE_DROP_NAT_EXHAUSTED,
	NODE_DROP_NAT_FULL,
	NODE_DROP_NAT_FAMILY,
	NODE_DROP_NAT_UNKNOWN,
	NODE_DROP_FIREWALL_DENIED,
	NODE_DROP_FIREWALL_STATE,
	NODE_DROP_FIREWALL_FULL,
	NODE_DROP_IDS,
	NODE_DROP_VIRTUAL,
	NODE_DROP_NO_USER,
	NODE_DROP_USER_FRAME,
	COUNTERS,
};

_Static_assert(COUNTERS <= MAX_COUNTERS, "more counters than a record has room for");

/* Keeps the enum, and with it the names, in the object's BTF. */
const volatile enum counter counters_end = COUNTERS;
