/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* adopt.h: entries for the live connections without an entry, so that the table is complete
 * (complete.h). */
#pragma once
#include "agent/clock.h"
#include "agent/complete.h"
#include "agent/flow.h"

/* tuple_of is the flow of a full socket of ours. A socket of IPv4 has its mapped addresses in the
 * fields of IPv6, too. */
static __always_inline void tuple_of(struct tuple *t, struct sock_common *sk)
{
	__builtin_memset(t, 0, sizeof(*t));
	bpf_core_read(&t->client, sizeof(t->client), &sk->skc_v6_daddr);
	bpf_core_read(&t->vip, sizeof(t->vip), &sk->skc_v6_rcv_saddr);
	t->client_port_be = sk->skc_dport;
	t->vip_port_be = bpf_htons(sk->skc_num);
	t->protocol = IPPROTO_TCP;
}

/* closed_by returns the flags of the sides that a socket in this state has seen close. */
static __always_inline __u32 closed_by(__u32 state)
{
	if (state == BPF_TCP_CLOSE_WAIT)
		return CONN_CLIENT_FIN;
	return state == BPF_TCP_FIN_WAIT1 || state == BPF_TCP_FIN_WAIT2 ? CONN_SERVER_FIN : 0;
}

/* is_connected is true of a socket that a SYN finds alive. */
static __always_inline bool is_connected(__u32 state)
{
	return state == BPF_TCP_ESTABLISHED || state == BPF_TCP_CLOSE_WAIT ||
	       state == BPF_TCP_FIN_WAIT1 || state == BPF_TCP_FIN_WAIT2;
}

/* adopt makes the entry of a flow established, or a new entry, where no established entry has to
 * give way. Returns false if there is no room. */
static __always_inline bool adopt(const struct tuple *t, const struct conn *fresh)
{
	__u64 hash = digest(t);
	int at = conn_find_slot(t, hash, seen_ns(fresh));

	if (at >= 0)
		return at & AT_ESTABLISHED || conn_change(hash, at, ESTABLISHED);
	at = conn_slot_for(hash, seen_ns(fresh));
	return at >= 0 && conn_put(t, hash, fresh, at, ESTABLISHED) >= 0;
}

/* adopt_conns looks at each socket of this namespace, under the socket's lock, and in the end at
 * none. */
SEC("iter/tcp")
int adopt_conns(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;
	struct conn fresh = { .seen = now_ns() >> SEEN_SHIFT, .state = CONN_DIRECT };
	const struct offering *o;
	struct tcp_sock *tp;
	struct tuple t;

	if (!sk) {
		__sync_val_compare_and_swap(&conns_completeness, CONNS_SOUGHT, CONNS_COMPLETE);
		return 0;
	}
	if (!is_connected(sk->skc_state))
		return 0;
	tp = (void *)bpf_skc_to_tcp_sock(sk);
	o = tp ? offering_of_socket(&tp->inet_conn.icsk_inet.sk) : NULL;
	if (!o || o->owner != OWNER_SOCKET)
		return 0;
	tuple_of(&t, sk);
	fresh.generation = NO_GENERATION;
	fresh.offering = o->index;
	fresh.next_in = tp->rcv_nxt;
	fresh.flags = closed_by(sk->skc_state);
	if (!adopt(&t, &fresh))
		conns_may_lack();
	return 0;
}
