/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* always.h: every offer is accepted, whatever the load. */
#pragma once
#include "agent/accept/willing.h"

static __always_inline enum willing accept_always(void)
{
	return WILLING;
}
