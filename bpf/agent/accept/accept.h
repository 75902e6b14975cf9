/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* accept.h: whether an agent accepts an offer that it could pass on, by the acceptance
 * policy of the service. A policy is a header of its own and a row in accepts. Go's twin is
 * policy.Acceptor. */
#pragma once
#include "agent/accept/always.h"
#include "agent/accept/dynamic.h"
#include "agent/accept/static.h"

enum acceptance {
	ACCEPT_ALWAYS = 0,
	ACCEPT_STATIC = 1,
	ACCEPT_DYNAMIC = 2,
};

static __always_inline enum willing accepts(const struct offering *o, struct load *l, __u64 load)
{
	switch (o->acceptance) {
	case ACCEPT_ALWAYS:
		return accept_always();
	case ACCEPT_STATIC:
		return accept_static(l, load);
	case ACCEPT_DYNAMIC:
		return accept_dynamic(o, l, load);
	}
	return POLICY_UNKNOWN;
}
