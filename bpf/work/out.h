/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* out.h: connections that a member opened and that owe it an answer: data went out last, and
 * no data has been read since. An answer that does not come is not waited for. */
#pragma once
#include "work/socket.h"
#include "work/task.h"

#define OUT_TURNS 6 /* recounts, 30 s */

/* opened_by_task is false of connections that were accepted: they have the backlog of their
 * listener, and over a Unix socket its address. */
static __always_inline bool opened_by_task(struct sock *sk)
{
	struct unix_sock *u = (void *)sk, *peer;

	if (sk->__sk_common.skc_family != AF_UNIX)
		return sk->sk_protocol == IPPROTO_TCP && !sk->sk_max_ack_backlog;
	peer = (void *)BPF_CORE_READ(u, peer);
	return sk->sk_type == SOCK_STREAM && !BPF_CORE_READ(u, addr) && BPF_CORE_READ(peer, addr);
}

/* answer_begins: a task of a member has sent to a client. */
static __always_inline void answer_begins(const struct work_socket *s, struct work_task *w)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct work_task *process;

	w->sent = 1;
	if (s->reader == (__u32)task->pid)
		return;
	process = task_known(task->group_leader);
	if (process)
		process->hands_over = 1;
}

/* out_begins: a task of a member has sent. */
static __always_inline void out_begins(struct sock *sk, struct work_task *w)
{
	struct work_socket *s = socket_known(sk);

	if (s && s->service) {
		answer_begins(s, w);
		return;
	}
	if (!opened_by_task(sk))
		return;
	if (!s)
		s = socket_learnt(sk);
	if (!s)
		return;
	if (!s->counted)
		s->since = turn_now();
	count_in(&s->counted, count_of(w->service, WORK_OUT));
}

static __always_inline void recount_out(struct work_socket *s)
{
	__u32 was = s->counted;

	if (was && turn_now() - s->since < OUT_TURNS)
		count_if(&s->counted, was, count_of(was / (2 * WORK_TERMS), WORK_OUT));
	else
		count_if(&s->counted, was, UNCOUNTED);
}
