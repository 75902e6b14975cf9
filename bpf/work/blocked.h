/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* blocked.h: tasks that sleep within a request: they have read it since their last wait for
 * work. */
#pragma once
#include "work/files.h"

#define FUTEX_TURNS 6 /* recounts, 30 s */

/* A task that has answered may wait for other tasks, or for a set of files, without a request:
 * so do the threads of a pool, and event loops without a connection. If no wait for work came
 * before, another task handed the request over, and may have it back. Where tasks hand requests
 * over, as in Go's runtime, none that waits for another has a request of its own. */
static __always_inline bool is_blocked(struct task_struct *task, const struct work_task *w,
				       enum call call)
{
	const struct work_task *process;

	if (!w->read)
		return false;
	switch (call) {
	case CALL_FUTEX:
		if (w->sent || !w->own)
			return false;
		process = task_known(task->group_leader);
		return process && !process->hands_over;
	case CALL_POLLS:
	case CALL_SELECTS:
	case CALL_EPOLLS:
		return !w->sent;
	default:
		return true;
	}
}

/* task_sleeps: a task leaves its CPU, and is not to run. */
static __always_inline void task_sleeps(struct task_struct *task, struct work_task *w)
{
	struct call_made made = call_of(task);

	if (w->state == TASK_IDLE && made.call != CALL_FUTEX)
		return; /* it has read nothing: whatever it waits for, it has no request */
	w->in_futex = made.call == CALL_FUTEX;
	if (waits_for_work(task, w, &made)) {
		w->read = 0;
		w->sent = 0;
		set_state(w, TASK_IDLE);
		return;
	}
	if (is_blocked(task, w, made.call)) {
		if (w->state != TASK_BLOCKED)
			w->since = turn_now();
		set_state(w, TASK_BLOCKED);
		return;
	}
	if (w->in_futex)
		w->own = 0;
	set_state(w, TASK_ASLEEP);
}

/* waits_in_vain: a task waits for another one, which may have answered for it. */
static __always_inline bool waits_in_vain(const struct work_task *w,
					  const struct work_task *process)
{
	return w->state == TASK_BLOCKED && w->in_futex &&
	       (process->hands_over || turn_now() - w->since >= FUTEX_TURNS);
}
