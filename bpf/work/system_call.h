/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* system_call.h: the system call that a task sleeps in. Numbers are those of 64-bit programs. */
#pragma once
#include "work/kernel.h"

enum call {
	CALL_OTHER,
	CALL_TAKES,   /* a connection, or completions */
	CALL_READS,   /* the first argument */
	CALL_POLLS,   /* an array of struct pollfd, its length */
	CALL_SELECTS, /* the number of descriptors, their bits */
	CALL_EPOLLS,  /* the first argument */
	CALL_FUTEX,
};

struct call_made {
	enum call call;
	__u64 first, second;
};

/* The registers of a task in user space, of each architecture. */
struct pt_regs___x86 {
	unsigned long orig_ax, di, si;
} KERNEL;

struct pt_regs___arm64 {
	__u64 regs[31];
	__u64 orig_x0;
	int syscallno;
} KERNEL;

static __always_inline enum call call_x86(__u64 number)
{
	switch (number) {
	case 43:  /* accept */
	case 288: /* accept4 */
	case 426: /* io_uring_enter */
		return CALL_TAKES;
	case 0:	  /* read */
	case 19:  /* readv */
	case 45:  /* recvfrom */
	case 47:  /* recvmsg */
	case 275: /* splice */
	case 299: /* recvmmsg */
		return CALL_READS;
	case 7:	  /* poll */
	case 271: /* ppoll */
		return CALL_POLLS;
	case 23:  /* select */
	case 270: /* pselect6 */
		return CALL_SELECTS;
	case 232: /* epoll_wait */
	case 281: /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		return CALL_EPOLLS;
	case 202: /* futex */
	case 449: /* futex_waitv */
	case 455: /* futex_wait */
		return CALL_FUTEX;
	}
	return CALL_OTHER;
}

static __always_inline enum call call_arm64(__u64 number)
{
	switch (number) {
	case 202: /* accept */
	case 242: /* accept4 */
	case 426: /* io_uring_enter */
		return CALL_TAKES;
	case 63:  /* read */
	case 65:  /* readv */
	case 76:  /* splice */
	case 207: /* recvfrom */
	case 212: /* recvmsg */
	case 243: /* recvmmsg */
		return CALL_READS;
	case 73: /* ppoll */
		return CALL_POLLS;
	case 72: /* pselect6 */
		return CALL_SELECTS;
	case 22:  /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		return CALL_EPOLLS;
	case 98:  /* futex */
	case 449: /* futex_waitv */
	case 455: /* futex_wait */
		return CALL_FUTEX;
	}
	return CALL_OTHER;
}

/* call_of reads the call that a task made; the fault of a page is CALL_OTHER. */
static __always_inline struct call_made call_of(struct task_struct *task)
{
	void *regs = (void *)bpf_task_pt_regs(task);
	struct call_made made = {};

	if (bpf_core_field_exists(struct pt_regs___x86, orig_ax)) {
		struct pt_regs___x86 *x86 = regs;

		made.call = call_x86(x86->orig_ax);
		made.first = x86->di;
		made.second = x86->si;
	} else if (bpf_core_field_exists(struct pt_regs___arm64, syscallno)) {
		struct pt_regs___arm64 *arm = regs;

		made.call = call_arm64(arm->syscallno);
		made.first = arm->orig_x0;
		made.second = arm->regs[1];
	}
	return made;
}
