/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* nat.h: source NAT (RFC 3022 §2.2) of TCP, UDP and ICMP echo. A new flow of the client network gets
 * a port of its core's range, by an atomic bitmap; two bindings, a direction each, translate its
 * packets. The binding for answers is there before that for questions, and a port is free again
 * after both are gone, so no live port is given twice. The maps are no LRU: a binding never goes
 * while its flow lives. */
#pragma once
#include "edge/closing.h"
#include "edge/refuse.h"
#include "edge/rewrite_end.h"
#include "table/ages.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SLOTS);
	__type(key, __u32);
	__type(value, struct nat_setting);
} nat_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct tuple);
	__type(value, struct nat_binding);
} nat_out SEC(".maps"), nat_in SEC(".maps");

/* A bit a port of a public address: 1 is taken. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_NAT_POOLS *NAT_PORT_WORDS);
	__type(key, __u32);
	__type(value, __u64);
} nat_ports SEC(".maps");

static __always_inline __u64 *nat_word(__u32 pool, __u32 port)
{
	__u32 at = pool * NAT_PORT_WORDS + port / 64;

	return bpf_map_lookup_elem(&nat_ports, &at);
}

static __always_inline void nat_release(__u32 pool, __u32 port)
{
	__u64 *word = nat_word(pool, port);

	if (word)
		__sync_fetch_and_and(word, ~(1ULL << port % 64));
}

/* lowest_free is the number of the lowest bit that is 0, or 64. */
static __always_inline __u32 lowest_free(__u64 taken)
{
	__u64 bit = ~taken & (taken + 1);
	__u32 n = 0;

	if (!bit)
		return 64;
	for (int half = 32; half; half /= 2)
		if (bit >> half) {
			bit >>= half;
			n += half;
		}
	return n;
}

/* A search for a port in the range of a core. */
struct nat_search {
	__u32 pool;
	__u32 first; /* port of the range */
	__u32 words; /* of the range */
	__u32 start; /* the word to begin with */
	__u32 port;  /* 0: none is free */
	__u32 zero;
};

/* take_port is the callback of bpf_loop: 1 ends it. */
static long take_port(__u64 i, struct nat_search *s)
{
	__u32 port = s->first + (s->start + (__u32)i) % (s->words ?: 1) * 64;
	__u64 *word = nat_word(s->pool, port), taken;
	__u32 free;

	if (!word)
		return 1;
	for (int tries = 0; tries < 4; tries++) { /* other CPUs take ports of the word, too */
		taken = READ_ONCE(*word);
		free = lowest_free(taken);
		if (free == 64)
			return 0;
		if (compare_and_swap(word, taken, taken | 1ULL << free)) {
			s->port = port + free;
			return 1;
		}
	}
	return 0;
}

/* nat_allocate takes a free port of a pool for a core, or returns 0. */
static __always_inline __u32 nat_allocate(const struct nat_setting *set, __u32 pool, __u32 core,
					  __u32 random)
{
	struct nat_search s = {
		.pool = pool,
		.first = set->first + core * set->ports,
		.words = set->ports / 64,
	};

	if (s.first + set->ports > 65536 || !s.words)
		return 0;
	s.start = random % s.words;
	bpf_loop(s.words, take_port, &s, 0);
	return s.port;
}

/* answer_of is the tuple of answers to a flow behind NAT. */
static __always_inline struct tuple answer_of(const struct tuple *question,
					      const struct nat_binding *out)
{
	struct tuple answer = *question;

	answer.client = out->addr;
	answer.client_port_be = out->port_be;
	if (answer.protocol == IPPROTO_ICMP ||
	    answer.protocol == IPPROTO_ICMPV6) /* one identifier */
		answer.vip_port_be = out->port_be;
	reverse(&answer);
	return answer;
}

/* question_of is the tuple that the client sends of the flow of a TCP answer. */
static __always_inline struct tuple question_of(const struct tuple *answer,
						const struct nat_binding *in)
{
	struct tuple question = *answer;

	reverse(&question);
	question.client = in->addr;
	question.client_port_be = in->port_be;
	return question;
}

/* nat_bind makes both bindings of a flow and returns the outward binding, or NULL with the reason. */
static __always_inline struct nat_binding *nat_bind(const struct tuple *t,
						    const struct nat_setting *set,
						    const struct in6_addr *public, __u32 core,
						    enum counter *reason)
{
	__u32 pool = is_mapped(public) ? set->pool4 : set->pool6;
	struct nat_binding out = { .addr = *public, .pool = pool, .seen = ticked_ns() };
	struct nat_binding in = { .addr = t->client, .pool = pool, .seen = ticked_ns() };
	__u32 port = nat_allocate(set, pool, core, bpf_get_prandom_u32());
	struct tuple question = *t, answer;
	struct nat_binding *bound;

	*reason = NODE_DROP_NAT_EXHAUSTED;
	if (!port)
		return NULL;
	in.port_be = t->client_port_be;
	out.port_be = bpf_htons(port);
	answer = answer_of(t, &out);
	*reason = NODE_DROP_NAT_FULL;
	if (bpf_map_update_elem(&nat_in, &answer, &in, BPF_NOEXIST)) {
		nat_release(pool, port);
		return NULL;
	}
	if (!bpf_map_update_elem(&nat_out, &question, &out, BPF_NOEXIST)) {
		count(NODE_NAT_BOUND);
		return bpf_map_lookup_elem(&nat_out, &question);
	}
	bound = bpf_map_lookup_elem(&nat_out, &question); /* another CPU's, if it is there */
	bpf_map_delete_elem(&nat_in, &answer);
	nat_release(pool, port);
	return bound;
}

/* nat_seen notes a packet of a binding. */
static __always_inline void nat_seen(struct nat_binding *b, const struct packet *p)
{
	__u64 now = ticked_ns();

	if (p->kind == KIND_ERROR) /* keeps no binding (RFC 5508 §4.2) */
		return;
	if (b->seen != now)
		b->seen = now;
	if (p->kind == KIND_TCP && !(p->flags & TCP_RST) && follow(&b->side, p) &&
	    p->flags & TCP_FIN)
		b->closed |= NAT_FIN;
}

/* nat_open makes a binding that of a connection that begins. */
static __always_inline void nat_open(struct nat_binding *b)
{
	b->closed = 0;
	b->side = (struct tcp_side){};
}

/* nat_opens_again takes back a RST at a segment of the client network, and both bindings' closes at one
 * that begins a connection. */
static __always_inline void nat_opens_again(const struct tuple *question, struct nat_binding *out,
					    const struct packet *p)
{
	struct nat_binding *in;
	struct tuple answer;

	if (p->kind == KIND_TCP && !(p->flags & TCP_RST) && out->closed & NAT_RST)
		out->closed &= ~NAT_RST;
	if (!begins_again(p))
		return;
	answer = answer_of(question, out);
	in = bpf_map_lookup_elem(&nat_in, &answer);
	nat_open(out);
	if (in)
		nat_open(in);
}

/* nat_reset keeps that a side reset the connection. */
static __always_inline void nat_reset(struct nat_binding *out, const struct nat_binding *in,
				      const struct packet *p, bool inward)
{
	if (out && in &&
	    is_reset(p, inward ? &in->side : &out->side, inward ? &out->side : &in->side))
		out->closed |= NAT_RST;
}

static __always_inline bool is_rst(const struct packet *p)
{
	return p->kind == KIND_TCP && p->flags & TCP_RST;
}

/* nat_outward translates the source of a packet of the client network. */
static __always_inline enum counter nat_outward(struct xdp_md *ctx, struct node_state *s,
						const struct nat_setting *set)
{
	const struct in6_addr *public = s->packet.family == 6 ? &set->public6 : &set->public4;
	struct packet *p = &s->packet;
	enum counter reason = COUNTERS;
	struct tuple t = p->t, answer;
	struct nat_binding *b;

	if (!*(const __u64 *)public && !*((const __u64 *)public + 1))
		return NODE_DROP_NAT_FAMILY;
	b = bpf_map_lookup_elem(&nat_out, &t);
	if (!b && (p->kind == KIND_ERROR || (p->kind == KIND_TCP && !opens(p))))
		return NODE_DROP_NAT_UNKNOWN; /* its binding was another node's */
	if (!b)
		b = nat_bind(&t, set, public, edge_core(s->outer.vni), &reason);
	if (!b)
		return reason;
	if (is_rst(p)) {
		answer = answer_of(&t, b);
		nat_reset(b, bpf_map_lookup_elem(&nat_in, &answer), p, false);
	}
	nat_opens_again(&t, b, p);
	nat_seen(b, p);
	return replace_end(ctx, p, END_SOURCE, &b->addr, b->port_be) ? COUNTERS
								     : NODE_DROP_MALFORMED;
}

/* nat_inward translates the destination of an answer. */
static __always_inline enum counter nat_inward(struct xdp_md *ctx, struct node_state *s)
{
	struct packet *p = &s->packet;
	struct tuple t = p->t, question;
	struct nat_binding *b;

	b = bpf_map_lookup_elem(&nat_in, &t);
	if (!b)
		return NODE_DROP_NAT_UNKNOWN;
	if (is_rst(p)) {
		question = question_of(&t, b);
		nat_reset(bpf_map_lookup_elem(&nat_out, &question), b, p, true);
	}
	nat_seen(b, p);
	return replace_end(ctx, p, END_DESTINATION, &b->addr, b->port_be) ? COUNTERS
									  : NODE_DROP_MALFORMED;
}

SEC("xdp")
int node_nat(struct xdp_md *ctx)
{
	struct node_state *s = node_state();
	const struct nat_setting *set;
	enum counter reason;
	__u32 slot;

	if (!s)
		return XDP_ABORTED;
	slot = s->slot;
	set = bpf_map_lookup_elem(&nat_settings, &slot);
	if (!set)
		return XDP_ABORTED;
	reason = s->inward ? nat_inward(ctx, s) : nat_outward(ctx, s, set);
	if (reason == NODE_DROP_NAT_UNKNOWN && may_refuse(s))
		return refuse(ctx, s);
	if (reason == NODE_DROP_NAT_UNKNOWN && may_give_back(s))
		return give_back(ctx, s);
	if (reason != COUNTERS)
		return verdict(reason, XDP_DROP);
	s->changed = 1;
	return next_function(ctx, s);
}

/* nat_age is the time without packets after which both bindings go. */
static __always_inline __u64 nat_age(const struct nat_binding *out, const struct nat_binding *in)
{
	bool fins = out->closed & in->closed & NAT_FIN;

	return fins || out->closed & NAT_RST ? linger_ns : idle_ns;
}

/* nat_expire removes the bindings of a flow that is over, and frees its port. */
static __always_inline __u32 nat_expire(const struct tuple *question)
{
	struct nat_binding *out = bpf_map_lookup_elem(&nat_out, question), *in;
	struct tuple answer;
	__be16 port;
	__u32 pool;

	if (!out)
		return 0;
	port = out->port_be;
	pool = out->pool;
	answer = answer_of(question, out);
	in = bpf_map_lookup_elem(&nat_in, &answer);
	if (in && !is_quiet(out->seen > in->seen ? out->seen : in->seen, nat_age(out, in)))
		return 0;
	bpf_map_delete_elem(&nat_out, question);
	bpf_map_delete_elem(&nat_in, &answer);
	nat_release(pool, bpf_ntohs(port));
	return 1;
}

/* nat_expire_one is the callback of sweep_some. */
static long nat_expire_one(__u64 i, struct node_sweeping *s)
{
	struct node_flow f;

	if (!flow_to_expire(s, i, &f))
		return 1;
	s->removed += nat_expire(&f.t);
	return 0;
}

/* sweep_nat removes the bindings of those of some flows that are over. The daemon runs it by
 * BPF_PROG_RUN with a struct node_expiry as the frame. */
SEC("xdp")
int sweep_nat(struct xdp_md *ctx)
{
	return sweep_some(ctx, nat_expire_one);
}
