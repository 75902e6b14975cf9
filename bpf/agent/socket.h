/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* socket.h: looking up a flow in the kernel's socket table. */
#pragma once
#include "agent/kernel_sockets.h"
#include "packet/parse.h"

/* socket_key writes t as the kernel looks it up and returns its size, by which the kernel
 * knows the family: IPv4 addresses are not mapped there. */
static __always_inline __u32 socket_key(struct bpf_sock_tuple *key, const struct tuple *t)
{
	__builtin_memset(key, 0, sizeof(*key));
	if (is_mapped(&t->vip)) {
		key->ipv4.saddr = t->client.s6_addr32[3];
		key->ipv4.daddr = t->vip.s6_addr32[3];
		key->ipv4.sport = t->client_port_be;
		key->ipv4.dport = t->vip_port_be;
		return sizeof(key->ipv4);
	}
	__builtin_memcpy(key->ipv6.saddr, &t->client, sizeof(t->client));
	__builtin_memcpy(key->ipv6.daddr, &t->vip, sizeof(t->vip));
	key->ipv6.sport = t->client_port_be;
	key->ipv6.dport = t->vip_port_be;
	return sizeof(key->ipv6);
}

/* namespace_of is the namespace of the service's sockets, as the helpers want it. */
static __always_inline __u64 namespace_of(const struct offering *o)
{
	return o->netns < 0 ? (__u64)BPF_F_CURRENT_NETNS : (__u64)o->netns;
}

/* find_socket looks t up as the kernel would for a packet from the client; the caller
 * releases the socket. */
static __always_inline struct bpf_sock *find_socket(struct xdp_md *ctx, const struct tuple *t,
						    const struct offering *o)
{
	struct bpf_sock_tuple key;
	__u32 size = socket_key(&key, t);

	return bpf_skc_lookup_tcp(ctx, &key, size, namespace_of(o), 0);
}

/* A flow's row of the socket table. A test sets virtual_sockets before loading, and then
 * writes this for the packets it sends; in a section of its own, since tests write the
 * clock's variable as a whole. */
struct socket {
	__u32 state;	 /* BPF_TCP_*; 0: nothing, not even a listener */
	__u32 rcv_isn;	 /* of a request or a full socket */
	__u32 number;	 /* request: snt_isn; full socket: rcv_nxt; TIME_WAIT: snd_nxt;
			  * listener: whether the packet acknowledges a cookie */
	__u32 listening; /* find_listener finds a listener … */
	__u32 full;	 /* … its accept queue is full */
	__u32 queue;
	__u32 window; /* full socket: bytes after rcv_nxt that it takes */
};

const volatile bool virtual_sockets = false;
struct socket virtual_socket SEC(".data.sockets") = {};

static __always_inline bool is_full_socket(__u32 state)
{
	return state && state != BPF_TCP_LISTEN && state != BPF_TCP_TIME_WAIT &&
	       state != BPF_TCP_NEW_SYN_RECV;
}
