/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* run.h: tasks of members that run. A task that was woken counts as soon as it has a CPU, and
 * after a wait for work as soon as it reads. */
#pragma once
#include "work/held.h"

/* member returns the record of the current task if its process is a member, or NULL. A thread
 * that was there before its process became a member has none yet. */
static __always_inline struct work_task *member(struct task_struct *task)
{
	struct work_task *w = task_known(task), *process;

	if (w && w->service)
		return w;
	process = task_known(task->group_leader);
	if (!process || !process->service)
		return NULL;
	w = task_learnt(task);
	if (!w)
		return NULL;
	w->service = process->service;
	set_state(w, TASK_RUNS);
	return w;
}

/* task_reads: a task has read, of a request or of an answer. */
static __always_inline void task_reads(struct work_task *w)
{
	if (w->state != TASK_RUNS)
		set_state(w, TASK_RUNS);
}

/* request_read: a task has read of a request, all or not. It and its process are members from now on. */
static __always_inline void request_read(struct task_struct *task, const struct sock *sk,
					 struct work_socket *s, bool all)
{
	struct work_task *w = task_known(task) ?: task_learnt(task), *process;

	if (!w)
		return;
	if (!w->service) {
		process = task_learnt(task->group_leader);
		if (process && !process->service)
			process->service = s->service;
	}
	w->service = s->service;
	w->last = sk->__sk_common.skc_hash;
	w->read = 1;
	hold(task, w, s, all);
	set_state(w, TASK_RUNS);
}

/* task_goes_on: a task has a CPU. A blocked task stays blocked until then: so long its answer
 * counts as owed, too. A task that waits for another task, and was woken, seldom has a request
 * that is not counted elsewhere, so the kernel need not report each task that wakes. */
static __always_inline void task_goes_on(struct work_task *w)
{
	if (w->state == TASK_ASLEEP || w->state == TASK_BLOCKED)
		set_state(w, TASK_RUNS);
}

/* task_begins: a member has a new task, which begins as the task that made it: with a request,
 * or without. */
static __always_inline void task_begins(struct task_struct *parent, struct task_struct *child)
{
	struct work_task *by = task_known(parent), *w;

	if (!by || !by->service || parent->tgid != child->tgid)
		return;
	w = task_learnt(child);
	if (!w)
		return;
	w->service = by->service;
	set_state(w, by->state == TASK_IDLE ? TASK_IDLE : TASK_RUNS);
}

/* recount_task looks at a task of any process. A task that sleeps does not run. */
static __always_inline void recount_task(struct task_struct *task, struct work_task *w)
{
	__u32 was = w->counted, behind = w->behind;

	if (w->state == TASK_RUNS && task->__state && !task->on_cpu) {
		count_if(&w->counted, was, UNCOUNTED);
		count_if(&w->behind, behind, UNCOUNTED);
		return;
	}
	if (was)
		count_if(&w->counted, was, counted_now(was));
	if (behind)
		count_if(&w->behind, behind, counted_now(behind));
}
