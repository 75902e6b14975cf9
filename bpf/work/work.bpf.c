// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* work.bpf.c: the work that each service has in progress, seen where the kernel moves data and
 * tasks, whatever the service's protocol (works.h has the sum).
 *
 *   a connection opens or ends    remember its service | count it no more
 *   a segment brings data         unread                                    unread.h
 *   a task reads                  read: the task is a member, and runs      unread.h, run.h, held.h
 *   a task sends                  to others: they owe an answer             calls_out.h
 *   a task sleeps                 for work: idle; else blocked              blocked.h, files.h
 *   a task goes on, ends          run                                       run.h
 *
 * Most sockets and tasks of a host are no service's: each program looks at a pointer then.
 * All programs hang on raw tracepoints, as some kernels and machines have no others. */
#include "work/blocked.h"
#include "work/calls_out.h"
#include "work/run.h"
#include "work/unread.h"

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(socket_turns, struct sock *sk, int before, int after)
{
	struct work_socket *s;
	__u32 service;

	if (after == BPF_TCP_ESTABLISHED) {
		service = service_of_socket(sk);
		s = service ? socket_learnt(sk) : NULL;
		if (s)
			s->service = service;
		return 0;
	}
	s = is_readable(after) ? NULL : socket_known(sk);
	if (s) {
		s->ended = 1;
		count_in(&s->counted, UNCOUNTED);
		connection_ends(s);
	}
	return 0;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(segment_comes, struct sock *sk, const struct sk_buff *skb)
{
	struct work_socket *s = socket_known(sk);

	if (s)
		unread_begins(sk, s, skb);
	return 0;
}

/* Some sockets are read where the kernel takes packets, for another task than the current. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(data_read, struct sock *sk)
{
	struct work_socket *s = socket_known(sk);
	struct work_task *w;
	bool all;

	if (!s || !sk->sk_lock.owned)
		return 0;
	if (s->service) {
		all = unread_ends(sk, s);
		request_read(bpf_get_current_task_btf(), sk, s, all);
		return 0;
	}
	w = member(bpf_get_current_task_btf());
	out_ends(s, w);
	if (w)
		task_reads(w);
	return 0;
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(data_sent, struct sock *sk, int length, int flags)
{
	struct work_task *w = is_sent(length) ? member(bpf_get_current_task_btf()) : NULL;

	if (w)
		out_begins(sk, w, length);
	return 0;
}

/* The same where the kernel has no such tracepoint, before Linux 6.3. */
SEC("fexit/tcp_sendmsg")
int BPF_PROG(data_sent_tcp, struct sock *sk, void *message, unsigned long size, int length)
{
	struct work_task *w = is_sent(length) ? member(bpf_get_current_task_btf()) : NULL;

	if (w)
		out_begins(sk, w, length);
	return 0;
}

/* Data over a Unix socket. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(data_received, struct sock *sk, int length, int flags)
{
	struct work_socket *s;
	struct work_task *w;

	if (sk->__sk_common.skc_family != AF_UNIX || length <= 0)
		return 0;
	w = member(bpf_get_current_task_btf());
	s = w ? socket_known(sk) : NULL;
	if (!s)
		return 0;
	out_ends(s, w);
	task_reads(w);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(task_switches, bool preempt, struct task_struct *before, struct task_struct *after,
	     unsigned int state)
{
	struct work_task *w = state && !preempt ? task_known(before) : NULL;

	if (w)
		task_sleeps(before, w);
	w = task_known(after);
	if (w)
		task_goes_on(w);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_made, struct task_struct *parent, struct task_struct *child)
{
	task_begins(parent, child);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_ends, struct task_struct *task)
{
	struct work_task *w = task_known(task);

	if (!w)
		return 0;
	set_state(w, TASK_GONE);
	return 0;
}

/* The recount: every task, and every socket of a network namespace. */

SEC("iter/task")
int recount_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct work_task *w, *process;

	if (!task || !task->group_leader->bpf_storage)
		return 0;
	process = task_known(task->group_leader);
	if (!process || !process->service)
		return 0;
	w = task_known(task) ?: task_learnt(task);
	if (!w)
		return 0;
	if (!w->service)
		w->service = process->service;
	if (waits_in_vain(w, process))
		set_state(w, TASK_ASLEEP);
	recount_task(task, w);
	return 0;
}

SEC("iter/tcp")
int recount_sockets(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct work_socket *s;
	struct tcp_sock *tp;
	struct sock *sk;
	__u32 service;

	if (!common || !is_readable(common->skc_state))
		return 0;
	tp = (void *)bpf_skc_to_tcp_sock(common);
	if (!tp)
		return 0;
	sk = &tp->inet_conn.icsk_inet.sk;
	service = service_of_socket(sk);
	s = service ? socket_learnt(sk) : socket_known(sk);
	if (!s)
		return 0;
	if (service) {
		s->service = service;
		recount_unread(tp, s);
	} else if (s->service) { /* no more */
		s->service = 0;
		count_in(&s->counted, UNCOUNTED);
	} else {
		recount_out(s);
	}
	return 0;
}

SEC("iter/unix")
int recount_unix(struct bpf_iter__unix *ctx)
{
	struct unix_sock *u = ctx->unix_sk;
	struct work_socket *s = u ? socket_known(&u->sk) : NULL;

	if (s)
		recount_out(s);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
