// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* bench.bpf.c: measures other programs (docs/evidence/bench.md). An outer program, which one
 * BPF_PROG_RUN runs many times, calls the function target, which user space replaces by the
 * program under test: the bench measures the code that ships.
 *
 *   write the next flow's address and port -> target -> restore the frame
 *
 * The packets are of one kind, or of several that follow each other as those of a connection
 * do: the steps of a lane.
 *
 * The floors (floors.h) run in target's place too, for comparison. */
#include "packet/parse.h"
#include "bench/floors.h"

#define BLOCK 32 /* bytes that are restored at a time */
#define BLOCKS 5
#define VERDICTS 8
#define STEPS 8 /* at most; a power of two */

/* One kind of packets. */
struct step {
	__u32 address_at, port_at;  /* of the client, in the frame */
	__u32 times;		    /* of a connection, one after the other */
	__u32 ahead;		    /* so many connections before the last step's */
	__u8 frame[BLOCKS * BLOCK]; /* its first bytes; the rest is the same in all steps */
};

/* The state of one CPU's run; each CPU has its own flows. */
struct lane {
	__u32 flows;	   /* random among so many; 0: in sequence */
	__u32 first;	   /* number of the first flow */
	__u32 length;	   /* of the frame */
	__u32 blocks;	   /* at the frame's begin that the target changes */
	__u32 tag_at;	   /* 0: no tag */
	__u32 opens_every; /* one packet in so many opens a flow; 0: none */
	__u32 flags_at;	   /* of TCP: SYN or ACK */
	__u32 opened;	   /* number of the next flow to open */
	__u32 steps;	   /* of a connection; 1: every packet is of the first kind */
	__u32 at;	   /* the next packet's step */
	__u32 left;	   /* packets of this step */
	__u32 connection;  /* so far */
	__u64 seed;
	__u64 packets; /* so far */
	__u64 damaged; /* packets that could not be restored */
	__u64 verdict[VERDICTS];
	struct step step[STEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* one a CPU: set before loading */
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

/* Signals' tags, by the number of their flow minus the first's. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before loading */
	__type(key, __u32);
	__type(value, __u64);
} tags SEC(".maps");

/* Keeps the layout in the object's BTF, for Go. */
const volatile struct lane no_lane = {};

#define OPENS TCP_SYN
#define GOES_ON TCP_ACK

static __always_inline struct lane *own_lane(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&lanes, &cpu);
}

/* within returns a pointer to n bytes of the frame, or NULL. */
static __always_inline void *within(void *data, void *end, __u32 at, __u32 n)
{
	asm volatile("%0 &= 0xff" : "+r"(at));
	return data + at + n > end ? NULL : data + at;
}

static __always_inline const struct step *next_step(const struct lane *l)
{
	__u32 at = l->at;

	asm volatile("%0 &= %1" : "+r"(at) : "i"(STEPS - 1));
	return &l->step[at];
}

/* pass_step moves on to the next packet's step. */
static __always_inline void pass_step(struct lane *l)
{
	if (l->steps < 2 || --l->left)
		return;
	if (++l->at == l->steps) {
		l->at = 0;
		l->connection++;
	}
	l->left = next_step(l)->times;
}

/* next_flow is the number of the packet's flow. */
static __always_inline __u32 next_flow(struct lane *l, const struct step *s)
{
	if (l->steps > 1)
		return l->first + l->connection + s->ahead;
	if (!l->flows)
		return l->first + (__u32)l->packets;
	l->seed = l->seed * 6364136223846793005ULL + 1442695040888963407ULL; /* Knuth's MMIX */
	return l->first + ((l->seed >> 32) * l->flows >> 32);
}

/* write_flow makes the frame a packet of the next flow: the flow's number is the last 16
 * bits of the client's address and the last 14 of its port. */
static __always_inline void write_flow(struct lane *l, void *data, void *end)
{
	const struct step *s = next_step(l);
	__u32 flow = next_flow(l, s), i = flow - l->first;
	__be16 *address, *port;
	__u8 *flags;
	__be64 *tag, *value;

	if (l->opens_every) {
		bool opens = !(l->packets % l->opens_every);

		flags = within(data, end, l->flags_at, sizeof(*flags));
		if (flags)
			*flags = opens ? OPENS : GOES_ON;
		if (opens)
			flow = l->opened++;
	}
	l->packets++;
	address = within(data, end, s->address_at, sizeof(*address));
	if (address)
		*address = bpf_htons(flow >> 14);
	port = within(data, end, s->port_at, sizeof(*port));
	if (port)
		*port = bpf_htons(0x4000 | (flow & 0x3fff));
	if (!l->tag_at)
		return;
	tag = within(data, end, l->tag_at, sizeof(*tag));
	value = bpf_map_lookup_elem(&tags, &i);
	if (tag && value)
		*tag = *value;
}

/* restore writes the frame's first blocks again, or those of the next step. */
static __always_inline bool restore(const struct lane *l, void *data, void *end)
{
	__u64 *to = data;
	const __u64 *from = (const void *)next_step(l)->frame;

	if (data + BLOCKS * BLOCK > end)
		return false;
#pragma unroll
	for (__u32 i = 0; i < BLOCKS; i++) {
		if (i >= l->blocks)
			break;
		for (__u32 j = 0; j < BLOCK / 8; j++)
			to[i * BLOCK / 8 + j] = from[i * BLOCK / 8 + j];
	}
	return true;
}

/* target is replaced by the program under test; the compiler must not assume its result. */
__noinline int target(struct xdp_md *ctx)
{
	int verdict = ctx->data ? XDP_TX : XDP_ABORTED;

	asm volatile("" : "+r"(verdict));
	return verdict;
}

/* target_signal is replaced by the program for signals, if that is another one. */
__noinline int target_signal(struct xdp_md *ctx)
{
	int verdict = ctx->data ? XDP_TX : XDP_ABORTED;

	asm volatile("" : "+r"(verdict));
	return verdict;
}

/* target_kept is replaced by the program for new flows that clients make known, if that is another
 * one. */
__noinline int target_kept(struct xdp_md *ctx)
{
	int verdict = ctx->data ? XDP_TX : XDP_ABORTED;

	asm volatile("" : "+r"(verdict));
	return verdict;
}

SEC("xdp")
int around(struct xdp_md *ctx)
{
	struct lane *l = own_lane();
	int verdict, growth;
	bool whole;

	if (!l)
		return XDP_ABORTED;
	write_flow(l, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	verdict = target(ctx);
	if (verdict == BENCH_SIGNAL)
		verdict = target_signal(ctx);
	else if (verdict == BENCH_KEPT)
		verdict = target_kept(ctx);
	l->verdict[(__u32)verdict % VERDICTS]++;
	pass_step(l);
	growth = (int)frame_bytes(ctx) - (int)l->length;
	whole = !growth || !bpf_xdp_adjust_head(ctx, growth);
	if (!whole || !restore(l, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		l->damaged++;
	return XDP_PASS;
}

/* target_out is target for tc. */
__noinline int target_out(struct __sk_buff *skb)
{
	int verdict = skb->len ? TC_ACT_OK : TC_ACT_SHOT;

	asm volatile("" : "+r"(verdict));
	return verdict;
}

SEC("tc")
int around_out(struct __sk_buff *skb)
{
	struct lane *l = own_lane();
	int verdict, growth;
	bool whole;

	if (!l)
		return TC_ACT_SHOT;
	write_flow(l, (void *)(long)skb->data, (void *)(long)skb->data_end);
	verdict = target_out(skb);
	l->verdict[(__u32)verdict % VERDICTS]++;
	pass_step(l);
	growth = (int)skb->len - (int)l->length;
	whole = !growth || !bpf_skb_adjust_room(skb, -growth, BPF_ADJ_ROOM_NET, 0);
	if (!whole || !restore(l, (void *)(long)skb->data, (void *)(long)skb->data_end))
		l->damaged++;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
