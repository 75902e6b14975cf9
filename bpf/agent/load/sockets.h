/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* sockets.h: the load measure `sockets`: established connections of a service, counted
 * where the kernel changes their state. A counted socket carries a struct counted_socket,
 * so that a socket which was open before its service was offered, or is seen twice, is
 * counted once and uncounted once.
 *
 * The kernel runs a program like socket_changed once at a time on a CPU: a change in an
 * interrupt of another change is lost (recursion_misses). A recount (agent/recount.h) sets that
 * right: it visits the open sockets, which moves them to the count in use now, and sets the
 * other count to 0. */
#pragma once
#include "agent/kernel_sockets.h"
#include "agent/load/loads.h"
#include <bpf/bpf_tracing.h>

/* User space writes it after loading, so that the programs are the same in each namespace. */
volatile __u64 netns_cookie SEC(".data.netns") = 0;

/* The recount that counted the socket, above the index of its load, plus one. It has to be
 * kept: when a socket is closed by a RST, the kernel removes its port first. */
struct counted_socket {
	__u64 counted;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct counted_socket);
} counted_sockets SEC(".maps");

/* offering_of_socket: a socket of IPv4 has its mapped address in the field of IPv6
 * too (sk_rcv_saddr_set of the kernel). */
static __always_inline const struct offering *offering_of_socket(struct sock *sk)
{
	struct in6_addr vip = {};

	if (sk->__sk_common.skc_net.net->net_cookie != netns_cookie)
		return NULL;
	bpf_core_read(&vip, sizeof(vip), &sk->__sk_common.skc_v6_rcv_saddr);
	return offering_at(&vip, bpf_htons(sk->__sk_common.skc_num), IPPROTO_TCP);
}

/* The counted sockets of each load, two counts for each. Every agent counts for itself: an
 * earlier agent's programs do not count here. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_OFFERINGS);
	__type(key, __u32);
	__type(value, __u32);
} open_sockets SEC(".maps");

/* open_at is the count of a load that the recounts of a parity use. */
static __always_inline __u32 *open_at(__u32 index, __u32 recount)
{
	__u32 i = 2 * index + (recount & 1);

	return bpf_map_lookup_elem(&open_sockets, &i);
}

static __always_inline __u64 sockets_load(const struct offering *o)
{
	const __u32 *even = open_at(o->index, 0), *odd = open_at(o->index, 1);

	return even && odd ? (__u32)(*even + *odd) : NO_LOAD;
}

static __always_inline void add_open(__u64 counted, __u32 n)
{
	__u32 *open = counted ? open_at((__u32)counted - 1, counted >> 32) : NULL;

	if (open)
		__sync_fetch_and_add(open, n);
}

/* socket_opened counts an established socket in the load of its service now. */
static __always_inline void socket_opened(struct sock *sk)
{
	const struct offering *o = offering_of_socket(sk);
	__u64 now = o ? (__u64)counting << 32 | (o->index + 1) : 0, before;
	struct counted_socket *m;

	m = bpf_sk_storage_get(&counted_sockets, sk, NULL, o ? BPF_SK_STORAGE_GET_F_CREATE : 0);
	if (!m)
		return;
	before = __sync_lock_test_and_set(&m->counted, now);
	add_open(now, 1);
	add_open(before, -1);
}

static __always_inline void socket_closed(struct sock *sk)
{
	struct counted_socket *m = bpf_sk_storage_get(&counted_sockets, sk, NULL, 0);

	if (m)
		add_open(__sync_lock_test_and_set(&m->counted, 0), -1);
}

SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(socket_changed, struct sock *sk, int before, int after)
{
	if (after == BPF_TCP_ESTABLISHED)
		socket_opened(sk);
	else if (before == BPF_TCP_ESTABLISHED)
		socket_closed(sk);
	return 0;
}

struct bpf_iter_meta;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} KERNEL;

/* sockets_open counts the sockets that are open: those from before socket_changed was attached
 * or a reload, and in a recount all; the kernel holds each socket's lock meanwhile. */
SEC("iter/tcp")
int sockets_open(struct bpf_iter__tcp *ctx)
{
	struct sock_common *common = ctx->sk_common;
	struct tcp_sock *tp;

	if (!common || common->skc_state != BPF_TCP_ESTABLISHED)
		return 0;
	tp = (void *)bpf_skc_to_tcp_sock(common);
	if (tp)
		socket_opened(&tp->inet_conn.icsk_inet.sk);
	return 0;
}
