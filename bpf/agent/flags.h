/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* flags.h: the flags of an entry, which any CPU may change. Both functions return true if
 * they changed the flag: a counter beside the flag moves exactly once however many CPUs see
 * the cause. A flag that is as it should be costs no atomic. */
#pragma once
#include "core/types.h"

/* flags_word is the word that has the flags in its lowest byte. */
static __always_inline __u32 *flags_word(struct conn *c)
{
	return (__u32 *)&c->flags;
}

static __always_inline bool set_flag(struct conn *c, __u32 flag)
{
	return (c->flags & flag) != flag && !(__sync_fetch_and_or(flags_word(c), flag) & flag);
}

static __always_inline bool clear_flag(struct conn *c, __u32 flag)
{
	return c->flags & flag && __sync_fetch_and_and(flags_word(c), ~flag) & flag;
}
