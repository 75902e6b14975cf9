/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* unread.h: connections of a service with data that no task has read. The kernel locks a
 * socket while it takes a segment, while a task reads and while a recount looks at it. */
#pragma once
#include "work/socket.h"
#include <linux/tcp.h>

#define RCV_SHUTDOWN 1

static __always_inline enum work_term unread_term(const struct sock *sk)
{
	return sk->sk_socket ? WORK_UNREAD : WORK_EARLY;
}

/* has_unread reads a socket. A FIN takes a number, and is not data. */
static __always_inline bool has_unread(const struct tcp_sock *tp)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;
	__u32 unread = tp->rcv_nxt - tp->copied_seq;

	return unread > (sk->sk_shutdown & RCV_SHUTDOWN ? 1 : 0);
}

/* brings_data is true if the segment's payload goes on where the connection's data ends:
 * nothing else can be read now, whatever a client sends. */
static __always_inline bool brings_data(const struct tcp_sock *tp, const struct sk_buff *skb)
{
	struct tcphdr tcp;
	__u32 payload, past;

	if (bpf_probe_read_kernel(&tcp, sizeof(tcp), skb->data))
		return false;
	payload = skb->len - 4 * tcp.doff;
	past = tp->rcv_nxt - bpf_ntohl(tcp.seq);
	return (__s32)past >= 0 && (__s32)payload > 0 && past < payload;
}

/* unread_begins: the kernel takes a segment of an established connection. */
static __always_inline void unread_begins(struct sock *sk, struct work_socket *s,
					  const struct sk_buff *skb)
{
	const struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (s->counted || s->ended || !s->service || !tp || !brings_data(tp, skb))
		return;
	count_in(&s->counted, count_of(s->service, unread_term(sk)));
}

/* unread_ends: a task has read. Returns false if it left data. */
static __always_inline bool unread_ends(struct sock *sk, struct work_socket *s)
{
	const struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	bool all = tp && !has_unread(tp);

	if (all)
		count_in(&s->counted, UNCOUNTED);
	else if (term_of(s->counted) == WORK_EARLY)
		count_in(&s->counted, count_of(s->service, WORK_UNREAD));
	return all;
}

static __always_inline bool is_readable(int state)
{
	return state == BPF_TCP_ESTABLISHED || state == BPF_TCP_CLOSE_WAIT;
}

/* recount_unread looks at a connection of a service. */
static __always_inline void recount_unread(const struct tcp_sock *tp, struct work_socket *s)
{
	const struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	count_in(&s->counted, has_unread(tp) ? count_of(s->service, unread_term(sk)) : UNCOUNTED);
}
