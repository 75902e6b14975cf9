/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* types.h: every layout that the programs share with each other and with Go.
 * Go's copies are generated from this file's BTF; nothing mirrors it by hand.
 * Fields named _be are in network byte order, all others in the host's. */
#pragma once
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in6.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#define MAX_CHOICES 4

/* A flow, as the client sends it: also the 40 bytes that SipHash reads. */
struct tuple {
	struct in6_addr client;
	struct in6_addr vip;
	__be16 client_port_be;
	__be16 vip_port_be;
	__u8 protocol;
	__u8 zero[3];
};

/* Segment identifiers (RFC 8986 §3.1): locator 64 bits, function 16,
 * argument 48. Every SID that Proffer sends or answers has this layout. */
struct sid {
	__be64 locator_be;
	__be16 function_be;
	__be16 generation_be; /* hash of the client's ISN; 0 says "none" */
	__u8 flags;	      /* bit 0: retry */
	__u8 key_id;	      /* of the tag in the sender's address; 0 says "untagged" */
	__be16 report_be;     /* guided: bit 8 idle, bits 0-7 logarithmic metric */
};

enum function {
	FN_NONE = 0,		   /* the node's own address, not a signal */
	FN_CONNECT_AVAIL = 0xca,   /* ca, server: take it, or pass it on */
	FN_CONNECT_FORCE = 0xcf,   /* cf, server: take it */
	FN_ACK_STICKINESS = 0xa5,  /* as, server: steered; the LB knows you have it */
	FN_RECOVER_STICKINESS = 0xe5, /* rs, server: whoever has it, say so again */
	FN_DELIVER = 0xd7,	   /* dt, server: End.DT6, decapsulate and deliver */
	FN_CREATE_STICKINESS = 0xc5, /* cs, LB: this server took it */
	FN_REMOVE_STICKINESS = 0xf5, /* rms, LB: this server closed it */
};

/* The interface identifier of an outer source is the place of the 64-bit tag;
 * until signals are tagged it is 1, the node's own address. */
#define UNTAGGED 1

/* What a node is: set before the programs are loaded. */
struct node {
	__be64 locator_be;
	__u8 mac[6];
	__u16 mtu;
};

struct service_key {
	struct in6_addr vip;
	__be16 port_be; /* 0 with protocol 0 marks "this address is a VIP" */
	__u8 protocol;
	__u8 zero;
};

enum dispatch {
	DISPATCH_SINGLE = 0,
	DISPATCH_HUNT = 1,
};

struct service {
	__u32 pool;    /* first index in the map `pool` */
	__u32 servers; /* how many follow it */
	__u32 choices;
	__u32 dispatch; /* enum dispatch */
};

struct server {
	__be64 locator_be;
	__u8 mac[6];   /* of its next hop */
	__u16 ready;   /* 0: next hop not resolved */
};

enum flow_state {
	FLOW_EMBRYONIC = 1, /* a server took it, the client has not acknowledged */
	FLOW_STEER = 2,
};

enum closed {
	CLOSED_CLIENT = 1,
	CLOSED_SERVER = 2,
	CLOSED_RESET = 4, /* by the server; the client alone never ends a flow */
};

/* LB: flow -> server. */
struct flow {
	__u64 seen_ns;
	__u32 closed; /* enum closed, or-ed */
	__u16 server;
	__u16 generation;
	__u32 state; /* enum flow_state */
	__u32 zero;
};

enum conn_state {
	CONN_WAIT = 1,	 /* signalling until the LB acknowledges */
	CONN_DIRECT = 2, /* answering the client directly */
};

enum conn_flags {
	CONN_ASKING = 1,  /* last payload went inward, none out since */
	CONN_PENDING = 2, /* accepted, not arrived */
	CONN_OWES = 4,	  /* a removal that did not fit its packet */
	CONN_CLIENT_FIN = 8,
	CONN_SERVER_FIN = 16,
	CONN_CLOSED = CONN_CLIENT_FIN | CONN_SERVER_FIN,
};

/* Agent: a cache of what the kernel's socket table knows of a flow. */
struct conn {
	__u64 seen_ns;
	__be64 lb_be;	   /* locator of the LB to signal to */
	__u32 offering;	   /* index of its load */
	__u32 epoch;	   /* when it was accepted, in epochs of the pending ring */
	__u32 next_in;	   /* sequence number after the last payload or FIN seen inward */
	__u32 flags;	   /* enum conn_flags, or-ed; changed by atomics only */
	__u16 generation;
	__u16 state; /* enum conn_state */
	__u32 zero;
};

enum acceptance {
	ACCEPT_ALWAYS = 0,
	ACCEPT_STATIC = 1,
	ACCEPT_DYNAMIC = 2,
};

enum signal {
	SIGNAL_BUSY = 0,
	SIGNAL_SOCKETS = 1,
	SIGNAL_SHM = 2,
};

enum on_full {
	FULL_RESET = 0,
	FULL_DROP = 1,
};

/* Agent: how a service is offered; constant while loaded. */
struct offering {
	__u32 index; /* of its load */
	__u32 cores;
	__u32 window;
	__u32 epsilon_ppm;
	__u32 workers; /* the largest threshold */
	__u8 acceptance;
	__u8 signal;
	__u8 on_full;
	__u8 zero;
};

#define PENDING_EPOCHS 8
#define EPOCH_SHIFT 27 /* an epoch is 2^27 ns = 134 ms; eight are 1.07 s */

struct pending {
	__u32 epoch;
	__u32 count;
};

/* Agent: what a service is doing. */
struct load {
	struct bpf_spin_lock lock; /* of the fields down to pending */
	__u32 threshold;	   /* c */
	__u32 attempts;
	__u32 accepted;
	struct pending pending[PENDING_EPOCHS];
	__u32 asking; /* connections with a request in progress; atomic */
	__u32 open;   /* established sockets; atomic */
};

/* Agent: what a program said of its load, copied by the daemon from its page. */
struct reported {
	__u64 written_ns; /* CLOCK_MONOTONIC, by the writer; 0: never */
	__u32 busy;
	__u32 zero;
};

/* Next hops that user space resolved, for the packets no server record covers. */
struct prefix {
	__u32 bits;
	struct in6_addr addr;
};

struct next_hop {
	__u8 mac[6];
	__u16 ready; /* 0: on this link, its neighbour not resolved yet */
};

/* The sweep's argument and answer. */
struct sweep {
	__u64 now_ns;
	__u64 idle_ns;
	__u64 linger_ns;
	__u64 embryonic_ns;
	__u64 kept;
	__u64 removed;
};
