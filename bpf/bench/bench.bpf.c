// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* bench.bpf.c: measures other programs (docs/bench.md). An outer program, run
 * many times by one BPF_PROG_RUN, calls a function in whose place user space links
 * the program under test: what is measured is the code that ships.
 *
 *   the next flow's address and port into the frame -> target -> undo what it did
 *
 * and the floors, each in the target's place, too: what such a program costs
 * without what makes it ours. */
#include "packet/parse.h"
#include "bench/floors.h"

#define FRAME 256 /* bytes of a template; every frame has at least BLOCK of them */
#define BLOCK 32  /* undone at a time */
#define BLOCKS 5
#define VERDICTS 8

/* What one CPU runs. A second one has its own, with other flows. */
struct lane {
	__u32 flows;  /* random among so many; 0: one after another */
	__u32 first;  /* number of the first one */
	__u32 length; /* of the frame */
	__u32 blocks; /* of the frame's begin that the target changes */
	__u32 address_at, port_at; /* of the client, in the frame */
	__u32 tag_at;		   /* 0: no tag */
	__u32 opens_every;	   /* each so many packets one opens a flow; 0: none */
	__u32 flags_at;		   /* of TCP: where those two differ */
	__u32 opened;		   /* number of the next flow that is opened */
	__u64 seed;
	__u64 packets; /* so far */
	__u64 spoilt;  /* those that could not be undone */
	__u64 verdict[VERDICTS];
	__u8 frame[FRAME];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* one a CPU: set before loading */
	__type(key, __u32);
	__type(value, struct lane);
} lanes SEC(".maps");

/* Signals' tags, by the place of their flow after the first. */
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

/* within returns the place of n bytes in a frame, or NULL. */
static __always_inline void *within(void *data, void *end, __u32 at, __u32 n)
{
	asm volatile("%0 &= 0xff" : "+r"(at));
	return data + at + n > end ? NULL : data + at;
}

/* next_flow is the number of the packet's flow. */
static __always_inline __u32 next_flow(struct lane *l)
{
	if (!l->flows)
		return l->first + (__u32)l->packets;
	l->seed = l->seed * 6364136223846793005ULL + 1442695040888963407ULL; /* Knuth's MMIX */
	return l->first + ((l->seed >> 32) * l->flows >> 32);
}

/* write_flow makes the frame one of a flow: its number is the last 16 bits of the
 * client's address and the last 14 of its port. */
static __always_inline void write_flow(struct lane *l, void *data, void *end)
{
	__u32 flow = next_flow(l), place = flow - l->first;
	__be16 *address, *port;
	__u8 *flags;
	__be64 *tag, *known;

	if (l->opens_every) {
		bool opens = !(l->packets % l->opens_every);

		flags = within(data, end, l->flags_at, sizeof(*flags));
		if (flags)
			*flags = opens ? OPENS : GOES_ON;
		if (opens)
			flow = l->opened++;
	}
	l->packets++;
	address = within(data, end, l->address_at, sizeof(*address));
	if (address)
		*address = bpf_htons(flow >> 14);
	port = within(data, end, l->port_at, sizeof(*port));
	if (port)
		*port = bpf_htons(0x4000 | (flow & 0x3fff));
	if (!l->tag_at)
		return;
	tag = within(data, end, l->tag_at, sizeof(*tag));
	known = bpf_map_lookup_elem(&tags, &place);
	if (tag && known)
		*tag = *known;
}

/* restore writes the frame's begin anew. */
static __always_inline bool restore(const struct lane *l, void *data, void *end)
{
	__u64 *to = data;
	const __u64 *from = (const void *)l->frame;

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

/* target stands for the program under test. The compiler must not learn what it
 * returns. */
__noinline int target(struct xdp_md *ctx)
{
	int verdict = ctx->data ? XDP_TX : XDP_ABORTED;

	asm volatile("" : "+r"(verdict));
	return verdict;
}

SEC("xdp")
int around(struct xdp_md *ctx)
{
	struct lane *l = own_lane();
	int verdict, grown;
	bool whole;

	if (!l)
		return XDP_ABORTED;
	write_flow(l, (void *)(long)ctx->data, (void *)(long)ctx->data_end);
	verdict = target(ctx);
	l->verdict[(__u32)verdict % VERDICTS]++;
	grown = (int)frame_bytes(ctx) - (int)l->length;
	whole = !grown || !bpf_xdp_adjust_head(ctx, grown);
	if (!whole || !restore(l, (void *)(long)ctx->data, (void *)(long)ctx->data_end))
		l->spoilt++;
	return XDP_PASS;
}

/* target_out is target for a program of tc. */
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
	int verdict, grown;
	bool whole;

	if (!l)
		return TC_ACT_SHOT;
	write_flow(l, (void *)(long)skb->data, (void *)(long)skb->data_end);
	verdict = target_out(skb);
	l->verdict[(__u32)verdict % VERDICTS]++;
	grown = (int)skb->len - (int)l->length;
	whole = !grown || !bpf_skb_adjust_room(skb, -grown, BPF_ADJ_ROOM_NET, 0);
	if (!whole || !restore(l, (void *)(long)skb->data, (void *)(long)skb->data_end))
		l->spoilt++;
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
