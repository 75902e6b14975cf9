/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* health.h: the LB's observation of servers that answer nothing. Of each server it counts, by CPU:
 *
 *   offered       new TCP connections that were offered to it first
 *   repeated      SYNs that came again, and were offered to it first again
 *   answered      new connections that it answered: its cs came, or the client acknowledged; and
 *                 those that it passed on, as the next candidate's cs shows
 *   unreachable   ICMP errors about outer packets to it
 *   alive         checks that came back from it: user space sends them, as a list with this LB behind
 *                 the server's agent (lb_check, dataplane/lb/check.go), in services of any dispatch
 *
 * User space decides by these (control/health.go). A server that is down is no candidate of a
 * table, and its record is marked (DELIVERY_DOWN): SYNs and datagrams of its flows leave it, no datagram
 * asks it, and other questions ask it last. A server that has left a check without an answer is doubted
 * (DELIVERY_DOUBTED): no datagram of an unknown flow asks it, and SYNs that use the ports of a flow again
 * go elsewhere. A probe is a new connection that is offered to such a
 * server all the same: user space puts a word beside the service's table, which the first SYN that may
 * go there takes. */
#pragma once
#include "core/count.h"
#include "core/stall.h"
#include "lb/service.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_SERVERS);
	__type(key, __u32);
	__type(value, struct health);
} health_of_servers SEC(".maps");

/* By the slot of the service's table: 0, or a bucket of a single server (enum bucket_layout). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * MAX_SERVICES + 1);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space stores a word at once */
	__type(key, __u32);
	__type(value, __u64);
} probes SEC(".maps");

static __always_inline void note_offered(__u32 server)
{
	struct health *h = bpf_map_lookup_elem(&health_of_servers, &server);

	if (h)
		h->offered++;
}

static __always_inline void note_repeated(__u32 server)
{
	struct health *h = bpf_map_lookup_elem(&health_of_servers, &server);

	if (h)
		h->repeated++;
}

/* note_answered is a function of its own for the verifier. */
__noinline int note_answered(__u32 server)
{
	struct health *h = bpf_map_lookup_elem(&health_of_servers, &server);

	if (h)
		h->answered++;
	return 0;
}

static __always_inline void note_alive(__u32 server)
{
	struct health *h = bpf_map_lookup_elem(&health_of_servers, &server);

	if (h)
		h->alive++;
}

static __always_inline void note_unreachable(__u32 server)
{
	struct health *h = bpf_map_lookup_elem(&health_of_servers, &server);

	if (h)
		h->unreachable++;
}

/* is_marked: a server's record has any of these bits of enum delivery. */
static __always_inline bool is_marked(__u32 server, __u32 marks)
{
	const struct server *s = server_at(server);

	return s && s->ready & marks;
}

/* is_down: user space has found that the server answers nothing. */
static __always_inline bool is_down(__u32 server)
{
	return is_marked(server, DELIVERY_DOWN);
}

/* is_doubted: the server is down, or it left a check without an answer. */
static __always_inline bool is_doubted(__u32 server)
{
	return is_marked(server, DELIVERY_DOWN | DELIVERY_DOUBTED);
}

static __always_inline __u64 *probe_at(const struct service *svc)
{
	__u32 at = svc->table;

	return bpf_map_lookup_elem(&probes, &at);
}

/* has_probe: a server of the service is to be probed. */
static __always_inline bool has_probe(const struct service *svc)
{
	const __u64 *probe = probe_at(svc);

	return probe && READ_ONCE(*probe);
}
