/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* service.h: the LB's services, their servers, and the tables that give each flow its
 * candidates (6LB §III). A table is replaced whole: a packet reads the old table or the new table. */
#pragma once
#include "core/digest.h"
#include "packet/parse.h"

#define MAX_SERVERS 16384 /* numbers; those of past servers are kept for a while */
#define NO_SERVER 0xffffffff

/* Services by VIP, port and protocol: a hash table with linear probing: a packet reads
 * two cache lines without a call. User space writes a record before a slot has its number, and
 * reuses it once no packet reads it. A slot:
 *
 *   0-13    number of the service's record
 *   14-15   enum plain
 *   16-63   if that is not 0: the lower 48 bits of the service's hash */
enum service_slot {
	NO_RECORD = 0,		/* an empty slot, which ends a chain */
	SERVICE_GONE = 1,	/* a slot of a removed service; record 1 is no service's */
	SERVICE_SLOT_BITS = 13, /* at most a quarter of the slots is used */
	MAX_PROBES = 64,	/* the longest chain that user space makes */
	RECORD_NUMBER_BITS = 14,
	SLOT_HASH_SHIFT = 16,
};

/* Whether packets of a service's known flows, or all of its packets, need an outer header alone
 * (lb/steady.h). */
enum plain {
	PLAIN_NO = 0,
	PLAIN_FLOWS = 1,  /* TRACK_FLOWS */
	PLAIN_CLIENT = 2, /* TRACK_CLIENT */
	PLAIN_HASH = 3,	  /* TRACK_NONE; the digest of the whole tuple chooses the server */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << SERVICE_SLOT_BITS);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space stores a number at once */
	__type(key, __u32);
	__type(value, __u64);
} service_slots SEC(".maps");

/* Four times the services: each VIP has a record without port (struct service_key), and all may
 * be replaced at once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SERVICE_GONE + 1 + 4 * MAX_SERVICES);
	__type(key, __u32);
	__type(value, struct service);
} services SEC(".maps");

/* A bucket of a service's table, and the result of choose(), is a word, so that a packet reads
 * eight bytes of a cache line that 8 buckets share. The first of its members are the flow's
 * candidates, in order of preference; the others were candidates in earlier pools, the latest
 * pool first. Where no agent can be asked, there is at most a second server: the last member is the
 * presumed owner of a flow without an entry. The numbers of up to three members are in the word:
 *
 *   0-13, 14-27, 28-41   numbers of the members
 *   42-52                where the service learns: 1 + the last member's seat in its tally; 0: none
 *   53-55                how many are candidates
 *   56-63                how many members there are
 *
 * Of more members it has the first two, and in bits 28-52 half the number of the table's element
 * from which on the others follow (lb/members.h). */
enum bucket_layout {
	NUMBER_BITS = 14,
	NAMED_MEMBERS = 3, /* at most, without others behind the buckets */
	FIRST_MEMBERS = 2, /* named, where others are behind the buckets */
	REST_SHIFT = FIRST_MEMBERS * NUMBER_BITS,
	SEAT_SHIFT = NAMED_MEMBERS * NUMBER_BITS,
	CHOICES_SHIFT = 53,
	MEMBERS_SHIFT = 56,
};

_Static_assert(MAX_SERVERS == 1 << NUMBER_BITS && MAX_CHOICES < 8 && MAX_MEMBERS < 256 &&
		       MAX_SEATS < 1 << (CHOICES_SHIFT - SEAT_SHIFT),
	       "a bucket has the bits for them");

/* In the place of a position in a list (lb/segment_list.h): the packet is a check, which names its server by its generation. */
enum list_end {
	POSITION_CHECK = 255,
};

static __always_inline __u32 choices_of(__u64 bucket)
{
	return bucket >> CHOICES_SHIFT & 7;
}

static __always_inline __u32 members_of(__u64 bucket)
{
	return bucket >> MEMBERS_SHIFT;
}

/* seat_of is 1 + the seat of the last member of a bucket of a service that learns, or 0. */
static __always_inline __u32 seat_of(__u64 bucket)
{
	return bucket >> SEAT_SHIFT & ((1 << (CHOICES_SHIFT - SEAT_SHIFT)) - 1);
}

/* named_member returns the number of a member of the first two, or of three. */
static __always_inline __u32 named_member(__u64 bucket, __u32 at)
{
	return bucket >> at * NUMBER_BITS & (MAX_SERVERS - 1);
}

struct table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	/* tables differ in size, and user space writes them through memory */
	__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
	__uint(key_size,
	       sizeof(__u32)); /* without BTF types, which Linux 6.1 would demand of Go's maps, too */
	__uint(value_size, sizeof(__u64));
};

/* Twice the services: all may get another table at once (dataplane/lb/slots.go, which keeps one
 * more). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2 * MAX_SERVICES + 1);
	__type(key, __u32);
	__array(values, struct table);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SERVERS);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SERVERS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __be64);
	__type(value, __u32);
} server_by_locator SEC(".maps");

/* The numbers of most servers, by a hash of their locators: a packet reads a cache line, and the
 * server's record shows whether it is that server's. Of servers with the same slot a single server has it; the
 * others are in server_by_locator, as all are. */
enum sender_slots {
	SENDER_SLOT_BITS = 15,
	SENDERS_IN_LINE = 32,
};

struct sender_line {
	__u16 number[SENDERS_IN_LINE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, (1 << SENDER_SLOT_BITS) / SENDERS_IN_LINE);
	__type(key, __u32);
	__type(value, struct sender_line);
} senders SEC(".maps");

/* service_hash needs no secret: senders of packets do not choose services. */
static __always_inline __u64 service_hash(const struct in6_addr *vip, __u64 port_and_protocol)
{
	const __u64 *half = (const void *)vip;
	__u64 h = half[0] * 0x9e3779b97f4a7c15ULL ^ half[1];

	h += port_and_protocol;
	return (h ^ h >> 32) * 0xbf58476d1ce4e5b9ULL;
}

static __always_inline __u32 service_slot(const struct service_key *key)
{
	return service_hash(&key->vip, *(const __u32 *)&key->port_be) >> (64 - SERVICE_SLOT_BITS);
}

static __always_inline bool same_service(const struct service_key *a, const struct service_key *b)
{
	const __u64 *x = (const void *)&a->vip, *y = (const void *)&b->vip;

	return x[0] == y[0] && x[1] == y[1] &&
	       *(const __u32 *)&a->port_be == *(const __u32 *)&b->port_be;
}

/* record_at returns the number of the record in a slot. */
static __always_inline __u32 record_at(__u32 slot)
{
	__u64 *number = bpf_map_lookup_elem(&service_slots, &slot);

	return number ? *(volatile __u64 *)number & ((1 << RECORD_NUMBER_BITS) - 1) : NO_RECORD;
}

/* Keeps the enum in the object's BTF, for Go. */
const volatile enum plain not_plain = PLAIN_NO;

/* plain_at returns enum plain of the service of a flow, above RECORD_NUMBER_BITS, and the number of
 * its record, by the first slot of its chain alone; or 0. */
static __always_inline __u32 plain_at(const struct tuple *t)
{
	__u64 ports = *(const __u64 *)&t->client_port_be; /* and the protocol */
	__u64 h = service_hash(&t->vip, ports >> 16), *at;
	__u32 slot = h >> (64 - SERVICE_SLOT_BITS);

	at = bpf_map_lookup_elem(&service_slots, &slot);
	h = at ? *(volatile __u64 *)at ^ h << SLOT_HASH_SHIFT : 0;
	return h >> SLOT_HASH_SHIFT ? 0 : h;
}

/* A search along a chain. */
struct service_search {
	struct service_key key;
	__u32 slot;   /* of the last probe */
	__u32 number; /* of its record, or NO_RECORD */
};

/* next_probe is the callback of bpf_loop. */
static long next_probe(__u64 i, struct service_search *f)
{
	__u32 number = record_at(++f->slot % (1 << SERVICE_SLOT_BITS));
	struct service *s = bpf_map_lookup_elem(&services, &number);

	if (s && same_service(&s->key, &f->key))
		f->number = number;
	return number == NO_RECORD || f->number;
}

/* probe returns the number of a service's record behind its first slot, or NO_RECORD. A
 * function of its own, as it is rare. */
__noinline int probe(const struct service_key *key, __u32 first)
{
	struct service_search f = { .slot = first };

	if (!key)
		return NO_RECORD;
	f.key = *key;
	bpf_loop(MAX_PROBES - 1, next_probe, &f, 0);
	return f.number;
}

static __always_inline struct service *service_at(const struct in6_addr *vip, __be16 port_be,
						  __u8 protocol)
{
	struct service_key key = { .vip = *vip };
	__u32 first, number;
	struct service *s;

	set_word(&key.port_be, port_be | (__u32)protocol << 16);
	first = service_slot(&key);
	number = record_at(first);
	s = bpf_map_lookup_elem(&services, &number);
	if (number == NO_RECORD || !s || same_service(&s->key, &key))
		return number == NO_RECORD ? NULL : s;
	number = probe(&key, first);
	return number == NO_RECORD ? NULL : bpf_map_lookup_elem(&services, &number);
}

/* service_of returns the service that a packet is for, or about. */
static __always_inline struct service *service_of(const struct packet *p)
{
	return service_at(&p->t.vip, p->t.vip_port_be, p->t.protocol);
}

/* vip_at returns the record that marks an address as a VIP: the service that takes its
 * fragments, or a service without buckets. */
static __always_inline struct service *vip_at(const struct in6_addr *a)
{
	return service_at(a, 0, 0);
}

/* server_at returns a server of today's pool or an earlier pool, or NULL. */
static __always_inline struct server *server_at(__u32 i)
{
	struct server *s = bpf_map_lookup_elem(&servers, &i);

	return s && s->locator_be ? s : NULL;
}

/* delivery_of returns the way to a server (enum delivery), or DELIVERY_NONE. */
static __always_inline __u32 delivery_of(const struct server *s)
{
	return s->ready & DELIVERY_WAYS;
}

/* number_of returns the number of the server with a locator, or NO_SERVER. */
static __always_inline __u32 number_of(__be64 locator_be)
{
	__u32 slot = locator_be * 0x9e3779b97f4a7c15ULL >> (64 - SENDER_SLOT_BITS);
	__u32 line = slot / SENDERS_IN_LINE, number, *known;
	const struct sender_line *near = bpf_map_lookup_elem(&senders, &line);
	const struct server *s;

	number = near ? near->number[slot % SENDERS_IN_LINE] : 0;
	s = bpf_map_lookup_elem(&servers, &number);
	if (s && s->locator_be == locator_be)
		return number;
	known = bpf_map_lookup_elem(&server_by_locator, &locator_be);
	return known ? *known : NO_SERVER;
}

/* bucket_at returns the bucket that a service's table has for a hash: 0 has no members. */
static __always_inline __u64 bucket_at(const struct service *svc, __u64 hash)
{
	__u32 at = svc->table;
	__u64 *bucket;
	void *table;

	table = bpf_map_lookup_elem(&tables, &at);
	if (!table)
		return 0;
	at = (hash >> 32) * svc->buckets >> 32; /* table.Table.Index */
	bucket = bpf_map_lookup_elem(table, &at);
	return bucket ? *bucket : 0;
}
