/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* types.h: every layout that the programs share with each other and with Go. Go's copies are
 * generated from this file's BTF. Fields named _be are in network byte order, all others in the
 * host's. */
#pragma once
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in6.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

enum limits {
	MAX_CHOICES = 4,     /* candidates of one offer */
	MAX_MEMBERS = 240,   /* of one bucket: the candidates and those of earlier pools */
	MAX_VIA = 3,	     /* transit SIDs before the candidates */
	MAX_SEGMENTS = 16,   /* of one route; a power of two, so that an index can be masked */
	MAX_SERVICES = 1024, /* of an LB */
	MAX_LEARNED = 31,    /* services of an LB with a tally: those that choose among seats */
	MAX_SEATS = 1024,    /* servers of one of them */
	MAX_HOPS = 65536,    /* next hops of a node: routes and neighbours of its link */
	MAX_OFFERED = 64,    /* services of an agent */
	MAX_OFFERINGS = 2 * MAX_OFFERED, /* with their VIPs, or with those of an earlier agent */
	MAX_THRESHOLD = 65535,		 /* busy count that a policy may name */
	MAX_ALLOWED = 65536,		 /* prefixes of clients, of all services of an LB */
	MAX_AGE_S = 4 * 3600, /* longest time without packets that an LB's configuration may name */
	STALE_NS = 1000000000, /* age of an application's own word that is no load any more */
	MOST_BUSY = 1 << 24,   /* of such a word: no agent has room for more flows */
};

/* A flow, as the client sends it: also the 40 bytes that SipHash and the digest read. IPv4
 * addresses are mapped (RFC 4291 §2.5.5.2). */
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
	__be16 generation_be; /* hash of the client's ISN; 0: none */
	__u8 flags;	      /* enum sid_flags */
	__u8 key_id;	      /* of the tag in the sender's address; 0: untagged */
	__be16 report_be;     /* guided: bit 8 idle, bits 0-7 logarithmic metric;
			       * rs of an LB: position at which the list continues */
};

enum sid_flags {
	SID_RETRY = 1, /* an offer for a SYN that came before */
	SID_FINAL = 2, /* an offer that is not given back: no listener means a RST */
	SID_HELD = 4, /* ca, cf: the LB has an established flow of this five-tuple with this server,
			* which gives back a SYN that it does not take; nm: that flow is alive */
	SID_CLIENT_CLOSED = 64,	 /* cs, rms: this side of the connection has closed it, as far */
	SID_SERVER_CLOSED = 128, /* as the server knows */
};

enum function {
	FN_NONE = 0,		      /* the node's own address, not a signal */
	FN_CONNECT_AVAIL = 0xca,      /* ca, server: take it, or pass it on */
	FN_CONNECT_FORCE = 0xcf,      /* cf, server: take it */
	FN_ACK_STICKINESS = 0xa5,     /* as, server: the LB has an entry that names it */
	FN_RECOVER_STICKINESS = 0xe5, /* rs, server: the owner signals cs again;
				       * LB: the list continues */
	FN_DELIVER = 0xd7,	      /* dt, server: End.DT6, decapsulate and deliver */
	FN_REJECT = 0x4e,	      /* rj, server: another server took it first */
	FN_CREATE_STICKINESS = 0xc5,  /* cs, LB: this server took it */
	FN_REMOVE_STICKINESS = 0xf5,  /* rms, LB: this server closed it */
	FN_NOT_MINE = 0x40,	      /* nm, LB: this server has no such flow, or no listener */
};

/* The interface identifier of an outer source address is the tag (auth.h), or for packets without
 * a tag the flow label, so that a receiver's queues tell flows apart. */
#define UNTAGGED 0

/* The node that runs the program; set before loading. */
struct node {
	__be64 locator_be;
	__u8 mac[6]; /* read together with mtu */
	__u16 mtu;
};

struct service_key {
	struct in6_addr vip;
	__be16 port_be; /* 0 with protocol 0: a record that marks the address as a VIP */
	__u8 protocol;
	__u8 zero;
};

enum wire {
	WIRE_ENCAP = 0,	 /* an outer header (RFC 8986 §5.2) */
	WIRE_INSERT = 1, /* an SRH inside the client's own packet (6LB §II) */
};

enum fragments {
	FRAGMENTS_DROP = 0,
	FRAGMENTS_HASH = 1, /* the whole service is hashed by addresses */
};

/* The server of a flow without an entry, where the client's own packets make the entries. */
enum recovery {
	RECOVERY_HISTORY = 0, /* the one that the history names */
	RECOVERY_AGENTS = 1,  /* the owner, which the servers' agents know */
};

struct service {
	struct service_key key;
	__u32 table;	/* index of its table in the map `tables` */
	__u32 buckets;	/* buckets of its table; 0: the record marks a VIP (struct service_key) */
	__u8 dispatch;	/* enum dispatch */
	__u8 wire;	/* enum wire */
	__u8 fragments; /* enum fragments */
	__u8 vias;
	__u16 mtu;	/* largest client packet that leaves room for every usual list */
	__u8 recovery;	/* enum recovery */
	__u8 tally;	/* number of its tally; 0: it does not learn */
	__u16 affinity; /* of clients, for so many 2^28 ns; 0: none */
	__u16 allow;	/* number of its list of clients (lb/allow.h); 0: it serves all */
	struct in6_addr via[MAX_VIA];
};

/* Which flows of a server are its occupancy, which it is chosen by (HLB §IV-A). */
enum counting {
	COUNT_ALL = 0,	   /* established and embryonic ones, from the SYN on */
	COUNT_LITERAL = 1, /* the paper's: established ones alone */
	COUNT_FLOOD = 2,   /* those, and the best of a few servers, as most SYNs are forged */
};

/* The tree over a tally's servers: each node is the least of TREE_ARY below it, in a cache line. */
enum tally_layout {
	TREE_ARY = 8,
	TREE_TOP = 16,	  /* values that a choice looks at */
	SEAT_SAMPLES = 8, /* durations of a seat, the last ones; a power of two */
	DATE_SHIFT = 22,  /* durations are in 2^22 ns = 4.2 ms */
};

/* A server in the tally of a service: a cache line. The last four fields may lose a change where
 * CPUs meet. */
struct seat {
	__u64 count[2]; /* its flows, by colour: 2^32 an established one, 1 an embryonic one; atomic */
	__u32 inverse; /* 2^16 * the largest weight / its weight; 0: it gets no new flows */
	__u32 server;  /* its number */
	__u32 begun;   /* flows so far */
	__u32 lived;   /* those that came to life */
	__u32 ended;   /* durations so far */
	__u16 sample[SEAT_SAMPLES];
	__u32 zero;
	__u64 reported; /* by user space: requests in hand << 32 | begun when the server was asked */
};

/* The servers of a service that chooses among them, with the flows that count there (lb/occupancy.h). */
struct tally {
	struct service_key key; /* of the service; 0: the tally is free */
	__u32 seats;		/* up to the last one in use */
	__u32 turn;		/* changes since user space refreshed the tree: breaks ties */
	__u32 counting;		/* enum counting */
	__u32 silent;		/* an established flow is not counted after so many 2^28 ns */
	__u32 colour;		/* of new flows; a recount changes it */
	__u32 ages;		/* 1: ages of flows are sampled, too, beside durations */
	__u32 ranked;		/* 1: the tree has the least of all scores */
	__u32 rows;		/* in use */
	__u32 walk;		/* rows visited in turn so far; atomic */
	__u32 zero[2];
	__u64 top[TREE_TOP];
	__u64 node[MAX_SEATS / TREE_ARY];
	__u64 leaf[MAX_SEATS];
	struct seat seat[MAX_SEATS];
	__u64 row[MAX_SEATS]; /* of seats (table/alias.h), for choices by weight, in turn, of two */
};

_Static_assert(sizeof(struct seat) == 64 && __builtin_offsetof(struct tally, top) == 64,
	       "a seat and the head of a tally are cache lines");
_Static_assert(MAX_SEATS == TREE_TOP * TREE_ARY * TREE_ARY, "the tree has three levels");

/* The way to a server. */
enum delivery {
	DELIVERY_NONE = 0,     /* its next hop is not resolved */
	DELIVERY_AGENT = 1,    /* over SRv6, to its agent, or to a kernel that does as dt asks */
	DELIVERY_SEG6 = 2,     /* over SRv6, to its kernel, which has a SID for each family */
	DELIVERY_L2 = 3,       /* to its link address */
	DELIVERY_VXLAN = 4,    /* to a device of its kernel */
	DELIVERY_WAYS = 7,     /* mask of those above */
	DELIVERY_DOWN = 8,     /* or-ed: the server answers nothing (lb/health.h) */
	DELIVERY_DOUBTED = 16, /* or-ed: it left a check without an answer */
};

struct server {
	__be64 locator_be; /* 0: the number is free; of a server without one: a hash */
	__u8 mac[6];	   /* of its next hop; read together with ready */
	__u16 ready;	   /* enum delivery */
};

/* How a server answers, as a CPU saw it (lb/health.h). The counts wrap. */
struct health {
	__u32 offered;
	__u32 repeated;
	__u32 answered;
	__u32 unreachable;
	__u32 alive; /* checks that came back */
};

/* The argument of dt to a kernel: a SID serves a single family. */
enum argument {
	ARGUMENT_IPV6 = 0,
	ARGUMENT_IPV4 = 4,
};

enum closed {
	CLOSED_CLIENT = 1,
	CLOSED_SERVER = 2,
	CLOSED_RESET = 4, /* by the server; the client alone never ends a flow */
};

enum conn_state {
	CONN_WAIT = 1,	 /* signalling until the LB acknowledges */
	CONN_DIRECT = 2, /* answering the client directly */
};

enum conn_flags {
	CONN_ASKING = 1,      /* payload went inward, none outward since: in asking[0] */
	CONN_PENDING = 2,     /* accepted, its handshake unfinished */
	CONN_REMOVAL_DUE = 4, /* rms did not fit its packet */
	CONN_CLIENT_FIN = 8,
	CONN_SERVER_FIN = 16,
	CONN_DOUBTED = 32,     /* the client's RST may be one that the stack dropped */
	CONN_NEXT_OUT = 64,    /* next_out is valid */
	CONN_ASKING_ODD = 128, /* as CONN_ASKING, in asking[1] */
	CONN_CLOSED = CONN_CLIENT_FIN | CONN_SERVER_FIN,
};

enum completeness { /* of the agent's table (agent/complete.h) */
	CONNS_INCOMPLETE = 0,
	CONNS_SOUGHT = 1,
	CONNS_COMPLETE = 2,
};

enum conn_date {
	SEEN_SHIFT = 20, /* an entry is dated in 2^20 ns */
};

/* Agent: a flow, and a cache of the kernel's socket of it: a cache line. lb_be changes with rs, a
 * repeated SYN, and the first `as` after the daemon adopted the entry; seen with any packet; next_in
 * with inward packets in the window, and with the acknowledgement beside the server's payload or
 * FIN; next_out with outward packets; generation when the kernel reports another. */
struct conn {
	struct in6_addr client; /* to `protocol`: as struct tuple */
	struct in6_addr vip;
	__be16 client_port_be;
	__be16 vip_port_be;
	__u8 protocol;
	__u8 offering;	/* index of its load */
	__u16 epoch;	/* time of its acceptance, in epochs of the pending ring */
	__be64 lb_be;	/* locator of the LB to signal to; 0: adopted, not known */
	__u32 seen;	/* in 2^20 ns, which wraps after 52 days: agent/flow_table.h */
	__u32 next_in;	/* sequence number after the last payload or FIN seen inward */
	__u32 next_out; /* the same outward; embryonic: after the SYN-ACK, or 0 */
	__u8 flags;	/* enum conn_flags, or-ed; changed by atomics only, of these 32 bits */
	__u8 state;	/* enum conn_state */
	__u16 generation;
};

_Static_assert(sizeof(struct conn) == 64 && MAX_OFFERINGS <= 256, "an entry is a cache line");

enum on_full {
	FULL_RESET = 0,
	FULL_DROP = 1,
};

/* Agent: how a service is offered. User space writes it by words of 64 bits, of which a packet
 * may meet some old and some new. */
struct offering {
	__u32 index; /* of its load, and of this record */
	__u32 cores;
	__u32 window;
	__u32 epsilon_ppm;
	__u8 acceptance; /* enum acceptance */
	__u8 measure;	 /* enum measure, of its load */
	__u8 on_full;
	__u8 owner;  /* enum owner */
	__s32 netns; /* id of the namespace of its sockets; -1: this one */
	__u8 mac[6]; /* of the VIP's owner, if not this host (macvlan) */
	__u8 wire;   /* enum wire */
	__u8 zero;
	__u32 workers; /* the largest threshold */
	__u32 none;
};

enum owner {
	OWNER_SOCKET = 0,
	OWNER_NETNS = 1, /* as OWNER_SOCKET, in another namespace */
	OWNER_TABLE = 2, /* the sockets are invisible: the agent's table decides */
};

enum pending_ring {
	PENDING_EPOCHS = 8,
	EPOCH_SHIFT = 27, /* an epoch is 2^27 ns = 134 ms; eight are 1.07 s */
};

struct pending {
	__u32 epoch;
	__u32 count;
};

/* Agent: the load of a service. */
struct load {
	struct bpf_spin_lock lock; /* of the fields before pending */
	__u32 threshold;	   /* c */
	__u32 attempts;
	__u32 accepted;
	struct pending pending[PENDING_EPOCHS];
	__u32 asking[2]; /* connections with a request in progress; atomic (agent/recount.h) */
	__u64 answered;	 /* requests; atomic */
};

/* The argument and result of two programs that change loads, which user space never writes. */
struct load_change {
	__u32 load;	 /* set_threshold: its number */
	__u32 threshold; /* set_threshold: c from now on */
	__u32 ended;	 /* end_recount: which count of each load */
	__u32 wrong;	 /* end_recount: how many were wrong */
};

/* Agent: an application's own word about its load, copied by the daemon. */
struct reported {
	__u64 written_ns; /* CLOCK_MONOTONIC, when it was true; 0: never */
	__u32 busy;
	__u32 asked; /* offers that met it since the daemon looked */
};

/* Agent: a load page, which a program writes (loadpage/). */
struct load_page {
	__u64 magic;
	__u64 written_ns; /* CLOCK_MONOTONIC; 0: never */
	__u32 busy;
	__u32 zero[1019];
};

/* Next hops that user space resolved, for packets to other nodes than servers. */
struct prefix {
	__u32 bits;
	struct in6_addr addr;
};

struct next_hop {
	__u8 mac[6];
	__u16 ready; /* 0: on this link, its neighbour not resolved yet */
};

/* A sender of signals without a valid tag (packet/suspects.h). */
struct suspect {
	__be64 sender_be; /* its locator */
	__u64 packets;
};

/* The sweep's argument and result. */
struct sweep {
	__u64 now_ns; /* the agent's */
	__u32 from;   /* LB: the first line, and how many */
	__u32 count;
	__u64 kept;
	__u64 removed;
	__u32 recolour; /* LB: 1 to give counted entries the colour of now */
	__u32 recoloured;
	__u32 first;   /* LB: renew_tally's first seat */
	__u32 afresh;  /* LB: to give all seats other turns, odd: the step from one to the next */
	__u32 owed;    /* LB: 1 to make the seats of renew_tally the best until they change */
	__u32 orphans; /* agent: 1 to remove the entries of services that are not offered */
	__u32 unmoved; /* agent: requests that a recount left where they are */
	__u32 zero;
};

/* Of lb in the bench, beside the actions of XDP: lb_kept or lb_signal has the packet. */
#define BENCH_KEPT 6
#define BENCH_SIGNAL 7
