/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Packets of pods that are inside OVS. skb->tc_index, which OVS neither matches nor changes, is the
 * number of a packet's slot plus one. Each CPU has a ring of slots.
 *
 * A slot is used again only when its packet has come out of OVS, or after SLOT_NS. Otherwise a
 * packet that waits in a backlog could be mistaken for the slot's next owner.
 */
#ifndef __SLOT_H
#define __SLOT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "entry.h"
#include "maps.h"
#include "plain.h"
#include "rewrite.h"

#define SLOT_NS 100000000ULL /* a packet needs less time in OVS, if it is not lost */
#define SLOT_FREE 0
#define SLOT_BUSY 1 /* a program is reading or writing it */
#define PRINT 8	    /* bytes of the payload that identify a packet, see print_of() */

const volatile __u32 slots_per_cpu = 1; /* Go sets it: a power of two */

/*
 * A packet that has entered OVS. The fields up to longest are for its shortcut. When the packet
 * leaves OVS, it is identified by len, priority, sequence, start, print, id and flags.
 */
struct slot {
	__u64 at; /* SLOT_FREE, SLOT_BUSY, or when its packet entered OVS */
	struct tuple t;
	__u8 macs[12]; /* source and destination */
	__u32 epoch;
	__u32 device;
	__u32 mtu;     /* the pod's */
	__u32 number;  /* of the pod's counts in pod_received */
	__u32 longest; /* the device's, see pod_port; 0: of another epoch */
	__u32 len;
	__u32 priority;
	__u32 sequence; /* of TCP */
	__u32 start; /* the first word of the IP header, which has the TOS, and IPv6's flow label */
	__u64 print;
	__be16 id;  /* of IPv4 */
	__u8 hops;  /* TTL or hop limit; learn_shortcut() replaces it by OVS's decrement */
	__u8 flags; /* of TCP */
	__u8 v6;
	__u8 too_long; /* it has a valid entry, but is longer than that allows */
	__u8 used;     /* the entry for packets from the wire was used since the last renewal */
	__u8 pad[5];
};

/*
 * Pinned, because during an upgrade the pods' old programs and the uplink's new program must use
 * the same slots.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* Go sets the size */
	__type(key, __u32);
	__type(value, struct slot);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} slots SEC(".maps");

/* The number of slots that this CPU has tried to claim. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} next_slot SEC(".maps");

/* Returns the sequence number of TCP, otherwise 0. */
static __always_inline __u32 sequence_of(const struct plain *p)
{
	return p->proto == IPPROTO_TCP ? *(__u32 *)(p->l4 + 4) : 0;
}

/* Returns the ID of IPv4, otherwise 0. */
static __always_inline __be16 id_of(const struct plain *p)
{
	return p->v6 ? 0 : ((struct iphdr *)p->ip)->id;
}

/*
 * Returns the first bytes of the payload. UDP of unconnected sockets has no ID or sequence number
 * that would identify a packet.
 */
static __always_inline __u64 print_of(struct __sk_buff *skb, const struct plain *p)
{
	__u64 print = 0;

	if (bpf_skb_load_bytes(skb, ETH_HLEN + p->header, &print, PRINT))
		return 0;
	return print;
}

/* Claims the next slot of this CPU. Returns NULL if its packet may still be inside OVS. */
static __always_inline struct slot *claim_slot(__u64 now, __u32 *number)
{
	__u32 zero = 0, i, *next;
	struct slot *s;
	__u64 at;

	next = bpf_map_lookup_elem(&next_slot, &zero);
	if (!next)
		return NULL;

	i = (*next)++ & (slots_per_cpu - 1);
	i += bpf_get_smp_processor_id() * slots_per_cpu;
	*number = i;
	s = bpf_map_lookup_elem(&slots, number);
	if (!s)
		return NULL;

	at = s->at;
	if (at == SLOT_BUSY || (at != SLOT_FREE && now - at < SLOT_NS))
		return NULL;
	return __sync_val_compare_and_swap(&s->at, at, SLOT_BUSY) == at ? s : NULL;
}

/* Returns the slot of a packet that leaves OVS. The caller must release it. */
static __always_inline struct slot *take_slot(__u32 number, __u64 now)
{
	struct slot *s = bpf_map_lookup_elem(&slots, &number);
	__u64 at;

	if (!s)
		return NULL;
	at = s->at;
	if (at <= SLOT_BUSY || now - at >= SLOT_NS)
		return NULL;
	return __sync_val_compare_and_swap(&s->at, at, SLOT_BUSY) == at ? s : NULL;
}

/*
 * Reports whether the packet is the slot's, and a shortcut can do all that OVS did to it: it does
 * not set a mark, a VLAN tag or a priority.
 */
static __always_inline int is_of_slot(struct __sk_buff *skb, const struct plain *p,
				      const struct slot *slot)
{
	if (slot->t.proto != p->proto || slot->len != skb->len || slot->flags != p->flags ||
	    slot->sequence != sequence_of(p) || slot->start != *(__u32 *)p->ip ||
	    slot->id != id_of(p))
		return 0;
	return !skb->mark && !skb->vlan_present && skb->priority == slot->priority;
}

#endif /* __SLOT_H */
