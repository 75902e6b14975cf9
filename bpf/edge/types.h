/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* types.h: the layouts that the edge LB and the datapath nodes share with Go, and the wire between
 * them (docs/design/edge-wire.md): VXLAN, with the packet's instance in the VNI and its flow in the link
 * addresses of the frame inside. */
#pragma once
#include "core/types.h"

/* The 24 bits of the VNI, from the highest: update 1, server 8, core 6, service 9. */
enum edge_wire {
	EDGE_SERVICE_BITS = 9,
	EDGE_CORE_BITS = 6,
	EDGE_SERVER_BITS = 8,
	EDGE_CORE_SHIFT = EDGE_SERVICE_BITS,
	EDGE_SERVER_SHIFT = EDGE_SERVICE_BITS + EDGE_CORE_BITS,
	EDGE_UPDATE = 1 << 23,	  /* from a node: the packet is behind its chain */
	EDGE_INSTANCE = 0x7fffff, /* server, core and service */
	EDGE_OWN_PART = 0x7fff,	  /* core and service: an instance of a node */
	EDGE_MARK_TO = 0x0250,	  /* the first bytes of the link addresses inside, both locally */
	EDGE_MARK_FROM = 0x0252,  /* administered (IEEE 802); four bytes of the flow follow each */
	VIRTUAL_STAMP = 0x56504d54, /* begins a datagram with struct virtual_stamp */
};

_Static_assert(EDGE_SERVER_SHIFT + EDGE_SERVER_BITS == 23, "the VNI has 24 bits");

/* The networks that an LB stands between. */
enum edge_side {
	SIDE_CLIENTS,
	SIDE_WORLD,
	SIDES
};

/* The last byte of the VXLAN header: a message, and the packet's way. */
enum edge_message {
	MESSAGE_PACKET,	 /* of a flow with an entry at the LB; or back from a node, changed */
	MESSAGE_RECOVER, /* LB: does this node own the packet's flow? */
	MESSAGE_OWNED, /* node: yes, at the core and service of the VNI; the packet is as it came */
	MESSAGE_NOT_MINE, /* node: no; the packet is as it came */
	MESSAGE_PROBE,	  /* LB: does the node answer? The packet inside is empty */
	MESSAGE_ALIVE,	  /* node: yes */
	MESSAGE_UNBOUND,  /* node: no function has a binding for the packet, which is as it came */
	MESSAGES,
	MESSAGE_BITS = 0x0f,
};

/* The link that a packet came by is in its way, as addresses may be forged. */
enum edge_way {
	WAY_INWARD =
		0x10, /* to the client network, from the world or another service; else from it */
	WAY_RETURNS = 0x20, /* behind its chain it goes back to the LB, even unchanged */
	WAY_BITS = 0xf0,
	WAYS = WAY_INWARD | WAY_RETURNS,
};

enum edge_limits {
	MAX_EDGE_SERVERS = 1 << EDGE_SERVER_BITS,
	MAX_EDGE_CORES = 1 << EDGE_CORE_BITS,
	MAX_EDGE_SERVICES = 1 << EDGE_SERVICE_BITS, /* 0 is none */
	MAX_INSTANCES = 4096, /* (server, core, service) with a number; 0 is none */
	MAX_EDGE_PREFIXES = 4096,
	MAX_CHAIN = 8,	/* functions of a service */
	MAX_ROWS = 256, /* of a service's alias table */
	EDGE_AGES = 20, /* classes of a flow's age */
	MAX_KEEPALIVES =
		16, /* keep-alives of a flow: as often as the world's end repeats a segment */
	MAX_EXPIRING = 256,	   /* flows of a step of a sweep, at the LB */
	MAX_NODE_EXPIRING = 64,	   /* … of a function: a step's frame is below a page */
	EDGE_RECENT_BITS = 13,	   /* 2^13 records of recent flows of a CPU */
	EDGE_SAMPLED = 64,	   /* packets for a sample */
	EDGE_SAMPLES = 256,	   /* that a CPU keeps */
	EDGE_OF_CLIENTS = 1 << 30, /* a sample's packet came from the client network */
	MAX_SLOTS = MAX_EDGE_SERVICES * MAX_CHAIN, /* places of functions in chains */
	MAX_LBS = 64,				   /* of a node */
	MAX_NAT_POOLS = 32,
	NAT_PORT_WORDS = 65536 / 64, /* of a pool's bitmap */
	MAX_RULES = 32,		     /* of a firewall */
	MAX_PATTERNS = 8,	     /* of an IDS */
	MAX_PATTERN_BYTES = 16,
};

/* An end of the tunnel between LB and node. IPv4 addresses are mapped. */
struct edge_end {
	struct in6_addr to;
	struct in6_addr from;
	__u8 mac[6]; /* of the next hop; read together with ready */
	__u16 ready; /* 0: packets cannot be sent there */
	__u8 own[6]; /* of the link */
	__u16 cores; /* of a node */
	__u32 link;  /* to send out of */
	__u32 sum;   /* of the outer IPv4 header without length and TOS */
	__u16 mtu;   /* of the link */
	__u16 zero[3];
};

_Static_assert(sizeof(struct edge_end) == 64, "a tunnel's end is a cache line");

/* LB: a flow, under the digest of its five-tuple, the same digest in both directions. */
struct edge_flow {
	__u64 word;    /* 0-22 server, core, service as in the VNI; 24-35 number of the instance;
			* 39-63 when the flow began, in 2^24 ns, which wraps after 6 days */
	__u64 partner; /* digest of the tuple before or after the functions' change; 0: none */
	__u64 seen;    /* when a packet came last, in 2^28 ns */
	struct in6_addr end; /* the client network's of this tuple: a client's, or a public one */
	__be16 end_port_be;
	__u16 keepalives; /* to the client, because no node has the port bound */
	__u16 vouched[SIDES]; /* by enum edge_side: edge_prefix_version when a packet from there was found
			   * to be of that side; 0: none was */
};

/* LB: a flow that a CPU had a packet of lately, in a direction (edge/recent.h). */
struct edge_recent {
	struct tuple t; /* as in the packet */
	__u64 hash;	/* of the flow */
	__u64 word;	/* of its entry */
	__u64 stamp; /* the era; in the 32 lower bits the date, and enum edge_side in the lowest */
};

_Static_assert(sizeof(struct edge_recent) == 64, "a record is a cache line");

/* Node: a flow that passed a chain, under the digest of its tuple before or after. */
struct kept_flow {
	__u32 instance; /* core and service, as in the VNI */
	__u32 seen;	/* when a packet came last, in 2^28 ns */
};

/* LB: an alias table (table/alias.h), of two that a service has in turns. */
struct edge_service {
	__u32 rows;  /* 0: no instance takes new flows */
	__u32 first; /* in edge_rows; 0: there is no such service */
};

/* LB: of an instance, on a CPU. */
struct edge_count {
	__u64 packets[EDGE_AGES]; /* by the age of their flow (edge/flow_age.h) */
	__u64 flows;		  /* begun there */
};

/* LB: a packet of a flow. */
struct edge_sample {
	struct tuple t; /* with the client network's end first */
	__u64 hash;	/* of the flow */
	__u64 at_ns;	/* by the kernel's ticks */
	__u32 instance; /* as in the VNI */
	__u32 bytes;	/* of the packet, and EDGE_OF_CLIENTS */
};

_Static_assert(sizeof(struct edge_sample) == 64, "a sample is a cache line");

/* LB: the last samples of a CPU, in a ring. */
struct edge_samples_of_cpu {
	__u64 next; /* so many were kept before */
	struct edge_sample of[EDGE_SAMPLES];
};

/* LB: the argument and result of sweep_edge. */
struct edge_expiry {
	__u64 now; /* result: the programs' clock, in ns */
	__u32 count;
	__u32 removed;
	__u64 hash[MAX_EXPIRING];
};

/* Node: of a core and a service, on a CPU. */
struct node_count {
	__u64 packets;
	__u64 bytes; /* of the packets inside */
};

/* Node: a flow of a function at a place of a chain. */
struct node_flow {
	struct tuple t;
	__u32 slot; /* 0 where places share flows */
	__u32 zero;
};

/* Node: the argument and result of a step of a function's sweep. */
struct node_expiry {
	__u64 now; /* result: the programs' clock, in ns */
	__u32 count;
	__u32 removed; /* result */
	struct node_flow flow[MAX_NODE_EXPIRING];
};

/* Node: source NAT at a place of a chain. The ports from `first` on are cut into a range for each
 * core, so that a port names its core. IPv4 addresses are mapped. */
struct nat_setting {
	struct in6_addr public4; /* 0: packets of the family are dropped */
	struct in6_addr public6;
	__u32 first; /* port; a multiple of 64 */
	__u32 ports; /* of a core; a multiple of 64 */
	__u32 pool4; /* of ports, below MAX_NAT_POOLS: places with one public address share it */
	__u32 pool6;
};

/* Node: the last numbers of a side of a TCP connection (edge/closing.h); 0: none yet. */
struct tcp_side {
	__u32 next; /* sequence number after its segments */
	__u32 ack;  /* its acknowledgement */
};

/* Node: a binding of source NAT, under the tuple before it; the tuple after it has another binding. */
struct nat_binding {
	struct in6_addr addr; /* to write into the packet */
	__be16 port_be;
	__u8 closed; /* enum nat_closed, of the packets of this direction */
	__u8 zero;
	__u32 pool;
	__u64 seen; /* when a packet of this direction came last, in ns of the kernel's ticks */
	struct tcp_side side; /* that sends this direction */
};

enum nat_closed {
	NAT_FIN = 1,
	NAT_RST = 2, /* of either side; in the outward binding alone */
};

/* Node: a firewall's rule. Nets are masked; IPv4 addresses are mapped. */
struct firewall_net {
	struct in6_addr net;
	struct in6_addr mask;
};

struct firewall_rule {
	struct firewall_net source;
	struct firewall_net destination;
	__u16 low; /* destination port, or echo identifier */
	__u16 high;
	__u8 protocol; /* 0: any */
	__u8 allow;
	__u16 zero;
};

struct firewall_setting {
	struct firewall_rule rule[MAX_RULES];
	__u32 rules;
	__u32 zero;
};

enum firewall_closed {
	FIREWALL_FIN_OUTWARD = 1,
	FIREWALL_FIN_INWARD = 2,
	FIREWALL_FINS = 3,
	FIREWALL_RST = 4, /* of either side */
};

/* Node: a connection that a firewall admitted. */
struct firewall_state {
	__u64 seen;   /* when a packet came last, in ns of the kernel's ticks */
	__u32 closed; /* enum firewall_closed */
	__u32 zero;
	struct tcp_side outward; /* the client network's side */
	struct tcp_side inward;
};

/* Node: bytes in a payload. */
struct pattern {
	__u64 value[2]; /* as they lie in memory; zeros behind */
	__u64 mask[2];	/* ones where they are */
	__u32 length;
	__u32 drop; /* IDS: packets with it */
};

struct ids_setting {
	struct pattern pattern[MAX_PATTERNS];
	__u32 patterns;
	__u32 zero;
};

struct rewriter_setting {
	struct pattern pattern;
	__u8 to[MAX_PATTERN_BYTES];
};

/* Node: a function that costs time. */
struct cost_setting {
	__u64 ns; /* of each packet, by the clock */
};

/* Node: a function that takes time of a virtual core (functions/virtual.h). */
struct virtual_setting {
	__u64 ns;	  /* of each packet */
	__u64 longest_ns; /* that a packet waits */
};

struct virtual_core {
	struct bpf_spin_lock lock;
	__u32 zero;
	__u64 free_ns; /* when the packets that it took are done */
	__u64 busy_ns; /* time of all packets that it took */
	__u64 served;
	__u64 dropped;
	__u64 stayed_ns; /* from arrival to the end of service, of all that it took */
};

/* The first bytes of a datagram with its instant of arrival, in the machine's byte order. */
struct virtual_stamp {
	__u32 magic; /* VIRTUAL_STAMP */
	__u32 zero;
	__u64 ns; /* of CLOCK_MONOTONIC */
};

/* Node: a core's link to user space. */
struct user_link {
	__u32 index; /* 0: nothing handles the core's packets there */
	__u8 mac[6];
	__u16 zero;
};

static __always_inline __u32 edge_server(__u32 vni)
{
	return vni >> EDGE_SERVER_SHIFT & (MAX_EDGE_SERVERS - 1);
}

static __always_inline __u32 edge_core(__u32 vni)
{
	return vni >> EDGE_CORE_SHIFT & (MAX_EDGE_CORES - 1);
}

static __always_inline __u32 edge_service_of(__u32 vni)
{
	return vni & (MAX_EDGE_SERVICES - 1);
}
