/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Shortcuts: established North-South connections of pods past OVS. No component configures them. An
 * entry records how OVS translated a packet. The packet is observed at the pod's device, before it
 * enters OVS, and again when it has left OVS with the verdict `out`. An entry holds for one lease.
 * Then one packet of each direction must go through OVS again, the pod's last. So a changed policy,
 * route or translation ends an entry without a message to these programs, and conntrack and the
 * flows of the datapath stay alive.
 *
 * The pod's packet must be the last, because OVN's ACLs are stateful. If a new policy forbids a
 * connection, the first packet that meets the drop marks the connection, and then both directions
 * are dropped. So if a packet from the wire has entered OVS, and then a pod's packet leaves OVS,
 * both directions are allowed.
 */
#ifndef __SHORT_H
#define __SHORT_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "entry.h"
#include "maps.h"

/* Go sets both before it loads the programs. If off, the verifier removes this code from them. */
const volatile __u8 shortcuts_on;
const volatile __u64 lease_ns = 1000000000;

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1); /* Go sets the size */
	__type(key, struct shortcut_key);
	__type(value, struct shortcut);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} shortcuts SEC(".maps");

/*
 * Every valid entry has this number. Go raises it when the configuration or OVN's flows change. It
 * is pinned, because old and new programs run side by side during an upgrade.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} shortcut_epoch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shortcut_counts);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} shortcut_counts SEC(".maps");

/* Devices of pods that have the program. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct pod_port);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} short_pods SEC(".maps");

/* Packets that pods received past their device, which its counters miss, by the pod's number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* Go sets the size */
	__type(key, __u32);
	__type(value, struct pod_cell);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} pod_received SEC(".maps");

/* Returns a hash of the address. The factors are odd constants of common integer hashes. */
static __always_inline __u32 digest(const struct addr *a)
{
	return (a->w[0] ^ a->w[1]) * 0x9e3779b1 + a->w[2] * 0x85ebca6b + a->w[3];
}

/* Makes the key of a tuple. Adjacent fields are written as one word, to save instructions. */
static __always_inline void key_of(struct shortcut_key *k, const struct tuple *t, int v6)
{
	k->src = v6 ? digest(&t->src) : t->src.w[3];
	k->dst = v6 ? digest(&t->dst) : t->dst.w[3];
	*(__u32 *)&k->sport = *(const __u32 *)&t->sport;
	*(__u32 *)&k->proto = t->proto | t->origin << 8 | (__u32)v6 << 16;
}

/*
 * Returns the shortcut of a tuple, or NULL. Two connections of IPv6 may have the same digests: the
 * later one replaces the other's entry.
 */
static __always_inline struct shortcut *find_shortcut(const struct tuple *t, int v6)
{
	struct shortcut_key k;
	struct shortcut *s;

	/* clang would merge the families' paths, and the verifier would forget a packet's length */
	asm volatile("" : "+r"(v6));
	key_of(&k, t, v6);
	s = bpf_map_lookup_elem(&shortcuts, &k);
	if (!s || (v6 && !(addr_eq(&s->was_src, &t->src) && addr_eq(&s->was_dst, &t->dst))))
		return NULL;
	return s;
}

static __always_inline __u32 current_epoch(void)
{
	__u32 zero = 0, *epoch = bpf_map_lookup_elem(&shortcut_epoch, &zero);

	return epoch ? *epoch : 0;
}

/*
 * Returns the value of the field seen for a packet that enters OVS from the wire: the top bit, and
 * the epoch's lower bits. A packet of an earlier epoch proves nothing.
 */
static __always_inline __u8 seen_in(__u32 epoch)
{
	return 0x80 | (epoch & 0x7f);
}

/* Reports whether the lease has not ended, and the epoch is the current one. */
static __always_inline int is_valid(const struct shortcut *s, __u64 now)
{
	return s->until > now && s->epoch == current_epoch();
}

static __always_inline struct shortcut_counts *counts_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&shortcut_counts, &zero);
}

#endif /* __SHORT_H */
