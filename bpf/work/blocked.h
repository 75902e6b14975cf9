/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* blocked.h: tasks that sleep within a request: they have read it since their last wait for
 * work. */
#pragma once
#include "work/files.h"
#include "work/held.h"

#define FUTEX_TURNS 6 /* recounts, 30 s */

/* A task that holds no request may wait for other tasks, or for a set of files: so do the
 * threads of a pool, and event loops without a connection. In a process where the task that
 * reads a request answers it, a task that waits for another has a request while it holds it. Where
 * tasks hand requests over, as in Go's runtime, the task that waits is not the task that has it. */
static __always_inline bool is_blocked(struct task_struct *task, const struct work_task *w,
				       enum call call)
{
	const struct work_task *process;

	if (!w->read)
		return false;
	switch (call) {
	case CALL_FUTEX:
		process = w->held ? task_known(task->group_leader) : NULL;
		return process && process->answers && !process->hands_over;
	case CALL_POLLS:
	case CALL_SELECTS:
	case CALL_EPOLLS:
		return w->held;
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
	w->round_over |= w->in_futex;
	if (waits_for_work(task, w, &made)) {
		w->read = 0;
		end_round(w);
		set_state(w, TASK_IDLE);
		return;
	}
	if (is_blocked(task, w, made.call)) {
		if (w->state != TASK_BLOCKED)
			w->since = turn_now();
		set_state(w, TASK_BLOCKED);
		return;
	}
	set_state(w, TASK_ASLEEP);
}

/* waits_in_vain: a task waits for another task, which may have answered for it. */
static __always_inline bool waits_in_vain(const struct work_task *w,
					  const struct work_task *process)
{
	return w->state == TASK_BLOCKED && w->in_futex &&
	       (process->hands_over || turn_now() - w->since >= FUTEX_TURNS);
}
