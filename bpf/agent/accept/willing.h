/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* willing.h: the results of an acceptance policy. */
#pragma once
#include "agent/load/loads.h"

enum willing {
	WILLING,
	TOO_BUSY,
	LOAD_UNKNOWN,	/* and the policy needs it: the next candidate may know its own */
	POLICY_UNKNOWN, /* of a newer control plane */
};
