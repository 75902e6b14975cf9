/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* held.h: requests that a task holds: it has read them, and not answered. An event loop reads of
 * many connections, and answers them in turn. A connection remembers its reader, and the round.
 *
 * A round ends when the task waits for work, or reads after it has answered or waited for another
 * task. A request that it holds then has no answer until later, as a BLPOP of redis, or needs none. */
#pragma once
#include "work/socket.h"
#include "work/task.h"

#define MOST_HELD 32767 /* count.h */

static __always_inline bool reads_now(const struct task_struct *task, const struct work_task *w,
				      const struct work_socket *s)
{
	return s->reader == (__u32)task->pid && s->round == w->round;
}

static __always_inline void end_round(struct work_task *w)
{
	w->held = 0;
	w->left = 0;
	w->round_over = 0;
	w->round++;
}

/* Where tasks hand requests over, another task may have the request that a task read. */
static __always_inline bool keeps_requests(struct task_struct *task)
{
	const struct work_task *process = task_known(task->group_leader);

	return process && !process->hands_over;
}

/* hold: a task has read of a request, all or not: as long as it leaves data, the connection counts
 * as unread. */
static __always_inline void hold(struct task_struct *task, struct work_task *w,
				 struct work_socket *s, bool all)
{
	bool held;

	if (w->round_over)
		end_round(w);
	held = s->held && reads_now(task, w, s);
	s->reader = task->pid;
	s->round = w->round;
	s->held = all;
	w->left = !all && keeps_requests(task);
	if (held == all)
		return;
	if (held && w->held)
		w->held--;
	else if (all && (!w->held || (w->held < MOST_HELD && keeps_requests(task))))
		w->held++;
}

/* hold_less: a task has sent to a server that owes it an answer, or on a connection that it read
 * in an earlier round. Of the requests that it holds, one may wait no more. */
static __always_inline void hold_less(struct work_task *w)
{
	if (w->held <= 1)
		return;
	w->held--;
	count_behind(w);
}

/* let_go: a task answers on a connection, or ends it. */
static __always_inline void let_go(const struct task_struct *task, struct work_task *w,
				   struct work_socket *s)
{
	bool held = s->held;

	s->held = 0;
	w->round_over = 1;
	if (!reads_now(task, w, s)) {
		hold_less(w);
	} else if (held && w->held) {
		w->held--;
		count_behind(w);
	}
}

/* connection_ends: a service's connection ends. Its reader may have no answer for it. */
static __always_inline void connection_ends(struct work_socket *s)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct work_task *w;

	if (s->reader != (__u32)task->pid)
		return;
	w = task_known(task);
	if (!w)
		return;
	if (s->held) {
		let_go(task, w, s);
	} else if (reads_now(task, w, s)) {
		w->left = 0;
		count_behind(w);
	}
}
