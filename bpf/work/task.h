/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* task.h: the record of a task of a member. A member is a process with a task that has read from
 * a connection of a service; its record is that of its first task. */
#pragma once
#include "work/count.h"
#include "work/kernel.h"

enum task_state {
	TASK_IDLE = 0,	 /* it waits for work, or was woken and has read nothing yet */
	TASK_ASLEEP = 1, /* it waits for something else, with no request */
	TASK_RUNS = 2,
	TASK_BLOCKED = 3, /* it waits for something else, with a request */
	TASK_GONE = 4,
};

struct work_task {
	__u32 counted;
	__u32 behind;  /* the count of the requests that it holds, but for the one at work */
	__u32 service; /* one more than the number of the service that it worked for last */
	__u32 since;   /* the recount in which it began to wait for another task */
	__u32 round;   /* the number of rounds (held.h) */
	__u32 last;    /* the service's connection that it read of last, by its hash */
	__u16 held;    /* requests that it has read in this round, and not answered */
	__u8 state;    /* enum task_state */
	__u8 read;     /* of a request, in this round */
	__u8 in_futex; /* it waits for another task */
	__u8 epoll_works;
	__u8 answers;	  /* a request that it read itself; of a process: a task does */
	__u8 hands_over;  /* of a process: a task answers a request that another one has read */
	__u8 round_over;  /* the next read begins a round */
	__u8 left;	  /* data of the request that it read last, so that this counts as unread */
	__s32 epoll_fd;	  /* the last one that it waited on … */
	__u32 epoll_turn; /* … looked at in this recount: whether it holds a service's socket */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct work_task);
} work_tasks SEC(".maps");

/* task_known returns the record of a task, or NULL: most tasks have none. */
static __always_inline struct work_task *task_known(struct task_struct *task)
{
	if (!task->bpf_storage)
		return NULL;
	return bpf_task_storage_get(&work_tasks, task, NULL, 0);
}

/* task_learnt must not be called where a runqueue is locked: the kernel may have to wake a task
 * to find memory. */
static __always_inline struct work_task *task_learnt(struct task_struct *task)
{
	return bpf_task_storage_get(&work_tasks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* count_behind counts the requests that a task holds, but for that which it works on. One that
 * it has read a part of is taken away: it counts as unread and by its task. */
static __always_inline void count_behind(struct work_task *w)
{
	bool works = w->state == TASK_RUNS || w->state == TASK_BLOCKED;
	__s32 n = w->held ? w->held - 1 : -w->left;

	if (works && n)
		count_in(&w->behind, several(count_of(w->service, WORK_UNREAD), n));
	else
		count_in(&w->behind, UNCOUNTED);
}

static __always_inline void set_state(struct work_task *w, enum task_state state)
{
	if (w->state == TASK_GONE)
		return;
	w->state = state;
	if (state == TASK_RUNS)
		count_in(&w->counted, count_of(w->service, WORK_RUN));
	else if (state == TASK_BLOCKED)
		count_in(&w->counted, count_of(w->service, WORK_BLOCKED));
	else
		count_in(&w->counted, UNCOUNTED);
	count_behind(w);
}
