/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* calls_out.h: connections that a member opened and that owe it an answer: data went out last, and
 * no data has been read since. An answer that does not come is not waited for.
 *
 * A connection may be shared by many requests (HTTP/2, gRPC). The first of their answers ends its
 * count, and no event of the kernel's ends the others. So for a while after an answer one more is
 * taken to be owed: the server is not idle. Other connections owe a single answer at a time, and are
 * spared that. */
#pragma once
#include "work/held.h"
#include <linux/errno.h>

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
static __always_inline void answer_begins(struct work_socket *s, struct work_task *w)
{
	struct task_struct *task = bpf_get_current_task_btf();
	bool held = s->held, own = s->reader == (__u32)task->pid;
	struct work_task *process;

	let_go(task, w, s);
	if (!held || (own && w->answers))
		return;
	process = task_known(task->group_leader);
	if (process && own)
		w->answers = process->answers = 1;
	else if (process)
		process->hands_over = 1;
}

/* is_sent: the result of a task's sending. To a client that is gone all is sent. */
static __always_inline bool is_sent(int length)
{
	return length > 0 || length == -EPIPE || length == -ECONNRESET;
}

/* out_begins: a task of a member has sent. */
static __always_inline void out_begins(struct sock *sk, struct work_task *w, int length)
{
	struct work_socket *s = socket_known(sk);

	if (s && s->service) {
		answer_begins(s, w);
		return;
	}
	if (length <= 0 || !opened_by_task(sk))
		return;
	if (!s)
		s = socket_learnt(sk);
	if (!s)
		return;
	if (!s->counted) {
		s->since = turn_now();
		hold_less(w);
	} else if (s->asker != w->last) {
		s->shared = 1;
	}
	s->asker = w->last;
	count_in(&s->counted, count_of(w->service, WORK_OUT));
}

/* out_ends: a task of a member, or of none, has read an answer. */
static __always_inline void out_ends(struct work_socket *s, const struct work_task *w)
{
	struct work *all = w && s->shared ? work_at(w->service - 1) : NULL;

	if (all)
		all->shared_ns = bpf_ktime_get_ns();
	count_in(&s->counted, UNCOUNTED);
}

static __always_inline void recount_out(struct work_socket *s)
{
	__u32 was = s->counted;

	if (was && turn_now() - s->since < OUT_TURNS)
		count_if(&s->counted, was, counted_now(was));
	else
		count_if(&s->counted, was, UNCOUNTED);
}
