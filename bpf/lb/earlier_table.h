/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* earlier_table.h: the table of flows of an earlier daemon, with another number of lines or another layout.
 * A fingerprint lacks bits of the digest that a table of another size needs, so no copy can be made: a
 * packet without an entry looks there by its own digest, and moves the entry (lb_before).
 *
 *   entry in the table   entry in that of before
 *   -                    there                    -> added here, then removed there
 *   there                there                    -> the entry here counts
 *
 * It is added first, so that no CPU meets the flow without an entry. Nothing is added to the table of
 * before; the sweep removes what expires, and user space the table when it is empty. All layouts from
 * OLDEST_LAYOUT on (dataplane/lb/earliertable.go) have the digest, the lines and the bits of a word in
 * common; older tables have no hints, and words without a service. */
#pragma once
#include "lb/insert.h"
#include "packet/scratch.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(max_entries, 1); /* set before loading: that of the table */
			__uint(map_flags, BPF_F_MMAPABLE);
			__type(key, __u32);
			__type(value, struct line);
		});
} before SEC(".maps");

const volatile __u32 lines_before = 0; /* 0: there is no such table */

static __always_inline struct line *line_before(__u32 i)
{
	__u32 zero = 0;
	void *table = bpf_map_lookup_elem(&before, &zero);

	return table ? bpf_map_lookup_elem(table, &i) : NULL;
}

static __always_inline __u32 other_line_before(__u32 line, __u64 fp)
{
	return alternate_among(line, fp >> DIGEST_SHIFT, lines_before);
}

/* free_before frees a slot with word 0, as free_slot does: a later daemon may use the table again. */
static __always_inline void free_before(__u32 line, struct line *l, __u32 i)
{
	struct hints *h = (void *)line_before(lines_before + line / HINTED_LINES);
	struct line *other;
	__u64 was;

	write_hint(h ? &h->of[line % HINTED_LINES] : NULL, i % LINE_SLOTS, 0);
	was = slot_free(&l->fingerprint[i]);
	other = was & IN_ALTERNATE ? line_before(other_line_before(line, was)) : NULL;
	if (other)
		displaced_dec(other->fingerprint);
}

/* word_before returns the word of a flow in the table of before, or 0. */
__noinline __u64 word_before(__u64 hash)
{
	__u64 fp = fingerprint_of(hash), word = 0;
	__u32 line = primary_among(hash, DIGEST_SHIFT, lines_before);

	for (int k = 0; k < 2 && !word; k++) {
		struct line *l = line_before(line);

		if (l)
			word = search_line(l, fp, seen_now(), false, NULL);
		line = other_line_before(line, fp);
	}
	return word;
}

/* drop_before removes an entry with this word from a line of the table of before. */
__noinline int drop_before(__u32 line, __u64 fp, __u64 word)
{
	struct line *l = line_before(line);

	for (__u32 i = 0; l && i < LINE_SLOTS; i++) {
		if (same_fingerprint(READ_ONCE(l->fingerprint[i]), fp) &&
		    compare_and_swap(&l->word[i], word, 0))
			free_before(line, l, i);
	}
	return 0;
}

/* move_before moves a flow's entry here, if it has none here, but one before. */
__noinline int move_before(__u64 hash, __u64 service)
{
	__u64 fp = fingerprint_of(hash), was, word;
	__u32 line = primary_among(hash, DIGEST_SHIFT, lines_before);

	if (flow_find(hash, false))
		return 0;
	was = word_before(hash);
	if (!was)
		return 0;
	word = was & ~WORD_MOVING;
	if (word & WORD_ESTABLISHED && !(word & WORD_SERVICE))
		word |= service; /* of a layout whose words had none */
	if (flow_add(hash, word, service) != ADDED)
		return 0;
	count(LB_FLOW_FROM_BEFORE);
	drop_before(line, fp, was);
	drop_before(other_line_before(line, fp), fp, was);
	return 0;
}

/* may_be_before: a packet's flow may have an entry in the table of before alone. */
static __always_inline bool may_be_before(struct scratch *scr)
{
	return lines_before && scr->sought != scr->packet.hash;
}

/* seek_before moves the entry of this CPU's packet here, if it is in the table of before. */
static __always_inline void seek_before(struct scratch *scr)
{
	scr->sought = scr->packet.hash;
	move_before(scr->packet.hash, service_bits(&scr->packet.t));
}
