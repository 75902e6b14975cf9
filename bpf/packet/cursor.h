/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* cursor.h: a place in a frame. A bounds check for each header. */
#pragma once
#include "core/types.h"

struct cursor {
	void *pos;
	void *end;
};

/* take returns the next n bytes and moves past them, or NULL at packet end. */
static __always_inline void *take(struct cursor *c, __u64 n)
{
	void *p = c->pos;

	if (p + n > c->end)
		return NULL;
	c->pos = p + n;
	return p;
}
