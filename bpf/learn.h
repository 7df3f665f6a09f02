/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Makes and renews shortcuts from packets of pods. enters_ovs() remembers a packet in a slot.
 * leaves_ovs() compares the packet with its slot, and so learns how OVS translates the connection.
 *
 * A new connection gets its two entries in this order:
 *
 *   1. a packet of the pod: learn_in() writes the entry for packets from the wire, with until 0
 *   2. a packet from the wire: shortcut_in() in past.h sets its field seen
 *   3. a packet of the pod: learn_shortcut() begins the lease, learn_out() writes the other entry
 *
 * A renewal after a lease is steps 2 and 3.
 */
#ifndef __LEARN_H
#define __LEARN_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "plain.h"
#include "rewrite.h"
#include "short.h"
#include "slot.h"

#define MAX_HOPS 8		/* routers that OVN may have between a pod and the wire */
#define RECENT_NS 1000000000ULL /* how long an entry that has ended is compared */

/*
 * Packets of UDP without an entry, by a hash of their tuple: when they were first counted (the
 * upper 24 bits), and their number (see is_worth_a_try()).
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} unanswered SEC(".maps");

#define ALL_TRIES 4 /* first packets of a connection, which are all observed */
#define TRY_EVERY 8 /* one of so many later packets is observed */

/*
 * Counts a packet that could be observed, and reports whether to observe it. If a connection cannot
 * use its shortcut, because it is never answered, or not within a lease, one packet in TRY_EVERY is
 * observed.
 */
static __always_inline int is_worth_a_try(__u8 *tries)
{
	__u8 n = *tries + 1;

	*tries = n < ALL_TRIES + TRY_EVERY ? n : ALL_TRIES;
	return n <= ALL_TRIES || n == ALL_TRIES + TRY_EVERY;
}

static __always_inline __u32 *unanswered_of(const struct tuple *t)
{
	__u32 i = digest(&t->src) ^ digest(&t->dst) ^ *(const __u32 *)&t->sport;

	i = i * 0x9e3779b1 >> 20; /* the upper 12 bits of a multiplicative hash: 4096 cells */
	return bpf_map_lookup_elem(&unanswered, &i);
}

/*
 * The same for a connection of UDP without an entry. The count begins anew when now >> 30 changes,
 * so about every second.
 */
static __always_inline int may_be_answered(const struct tuple *t, __u64 now)
{
	__u32 *cell = unanswered_of(t), since = now >> 30 << 8;
	__u8 tries;
	int try;

	if (!cell)
		return 1;

	tries = (*cell & ~0xffU) == since ? *cell : 0;
	try = is_worth_a_try(&tries);
	*cell = since | tries;
	return try;
}

/*
 * Remembers a packet on its way into OVS, in a slot. too_long: the packet has a valid shortcut, but
 * is longer than that allows.
 */
static __noinline int enters_ovs(struct __sk_buff *skb, const struct plain *p,
				 const struct tuple *t, __u64 now, int too_long)
{
	__u32 device = skb->ifindex, number;
	struct shortcut_counts *counts;
	struct pod_port *port;
	struct slot *slot;

	port = bpf_map_lookup_elem(&short_pods, &device);
	if (!port || !port->mtu || cfg.local || cfg.vlan || skb->mark)
		return 0;

	slot = claim_slot(now, &number);
	if (!slot) {
		counts = counts_of_cpu();
		if (counts)
			counts->unseen++;
		return 0;
	}

	slot->t = *t;
	copy_mac(slot->macs, p->eth + ETH_ALEN);
	copy_mac(slot->macs + ETH_ALEN, p->eth);

	slot->epoch = current_epoch();
	slot->device = device;
	slot->mtu = port->mtu;
	slot->number = port->number;
	slot->longest = port->epoch == slot->epoch ? port->longest : 0;

	slot->len = skb->len;
	slot->priority = skb->priority;
	slot->sequence = sequence_of(p);
	slot->start = *(__u32 *)p->ip;
	slot->id = id_of(p);

	slot->hops = p->hops;
	slot->flags = p->flags;
	slot->v6 = p->v6;
	slot->too_long = too_long;
	slot->print = print_of(skb, p);

	/* written last, because it ends SLOT_BUSY */
	slot->at = now;
	skb->tc_index = number + 1;
	return 0;
}

/*
 * Reports whether the entry translates as OVS does now. It does not compare device and length,
 * which are tests before the entry is used.
 */
static __always_inline int is_same(const struct shortcut *s, const struct shortcut *now)
{
	return addr_eq(&s->src, &now->src) && addr_eq(&s->dst, &now->dst) &&
	       s->sport == now->sport && s->dport == now->dport && s->hops == now->hops &&
	       same_macs(s->macs, now->macs);
}

/*
 * Counts an entry that OVS contradicts although it was in use until a moment ago and no change was
 * announced since. A busy connection's entry ends with its lease and is made again at once, so each
 * lease is compared. old may be NULL.
 */
static __always_inline void count_contradiction(const struct shortcut *old,
						const struct shortcut *now)
{
	struct shortcut_counts *counts;

	if (!old || !old->until || old->epoch != now->epoch || old->device != now->device ||
	    old->until + RECENT_NS < bpf_ktime_get_coarse_ns() || is_same(old, now))
		return;
	counts = counts_of_cpu();
	if (counts)
		counts->mismatched++;
}

/* Writes an entry. is_new: not in place of another. */
static __always_inline void put_shortcut(const struct tuple *t, int v6, struct shortcut *s,
					 int is_new)
{
	struct shortcut_counts *counts = counts_of_cpu();
	struct shortcut_key k;

	key_of(&k, t, v6);
	s->was_src = t->src;
	s->was_dst = t->dst;
	if (bpf_map_update_elem(&shortcuts, &k, s, BPF_ANY) || !counts)
		return;
	if (is_new)
		counts->created++;
}

/*
 * Reports whether s is the entry for packets from the wire as OVS translates now: such a packet
 * gets the addresses that the pod's packet had, exchanged.
 */
static __always_inline int is_learned_in(const struct shortcut *s, const struct slot *slot)
{
	return addr_eq(&s->src, &slot->t.dst) && addr_eq(&s->dst, &slot->t.src) &&
	       s->sport == slot->t.dport && s->dport == slot->t.sport && s->hops == slot->hops &&
	       same_macs(s->macs, slot->macs) && s->device == slot->device &&
	       s->number == slot->number && s->longest == slot->mtu;
}

/*
 * Writes the entry for packets from the wire as OVS translates now. It is not valid yet, because
 * its lease has not begun. The entry has the MAC addresses that the pod used, exchanged:
 * enters_ovs() has stored them in this order. old: the entry in its place, or NULL.
 */
static __noinline int learn_in(const struct tuple *wire, const struct slot *slot,
			       struct shortcut *old)
{
	struct shortcut n = {};

	n.epoch = slot->epoch;
	n.device = slot->device;
	n.number = slot->number;
	n.src = slot->t.dst;
	n.dst = slot->t.src;
	n.sport = slot->t.dport;
	n.dport = slot->t.sport;
	n.hops = slot->hops; /* now the difference */
	n.longest = slot->mtu;
	copy_macs(n.macs, slot->macs);

	count_contradiction(old, &n);
	set_diffs(&n, wire, slot->v6);
	put_shortcut(wire, slot->v6, &n, !old);
	return 0;
}

/* Reports whether s is the entry for packets of the pod as OVS translates now. */
static __always_inline int is_learned_out(const struct shortcut *s, const struct slot *slot,
					  const struct tuple *out, const void *macs)
{
	return addr_eq(&s->src, &out->src) && addr_eq(&s->dst, &out->dst) &&
	       s->sport == out->sport && s->dport == out->dport && s->hops == slot->hops &&
	       same_macs(s->macs, macs) && s->device == slot->device && is_mac(s->from, slot->macs);
}

/*
 * Renews or writes the entry for packets of the pod. out and macs: as the packet is after OVS. len:
 * length of the longest packet that OVS is known to let through.
 */
static __noinline int learn_out(const struct slot *slot, const struct tuple *out, const void *macs,
				__u32 len, __u64 now)
{
	struct shortcut n = {}, *old = find_shortcut(&slot->t, slot->v6);
	__u32 *cell;

	if (old && old->epoch == slot->epoch && old->longest > len)
		len = old->longest;

	if (old && is_learned_out(old, slot, out, macs)) {
		/* an entry of another epoch is invalid until its epoch is set, so that is last */
		old->longest = len;
		old->seen = 0;
		if (slot->used)
			old->tries = 0;
		old->renewals = old->epoch == slot->epoch ? old->renewals + 1 : 0;
		old->until = now + lease_ns;
		old->epoch = slot->epoch;
		return 0;
	}

	n.until = now + lease_ns;
	n.epoch = slot->epoch;
	n.device = slot->device;
	n.src = out->src;
	n.dst = out->dst;
	n.sport = out->sport;
	n.dport = out->dport;
	copy_macs(n.macs, macs);
	copy_mac(n.from, slot->macs);
	n.longest = len;
	n.hops = slot->hops;
	set_diffs(&n, &slot->t, slot->v6);

	count_contradiction(old, &n);
	if (old && old->epoch == n.epoch)
		n.renewals = old->renewals + 1;
	put_shortcut(&slot->t, slot->v6, &n, !old);

	cell = unanswered_of(&slot->t);
	if (!old && cell)
		*cell = 0;

	return 0;
}

/*
 * Raises the length of packets that OVS is known to let through, of the connection and of the
 * device. Returns the device's length.
 */
static __noinline __u32 learn_length(const struct slot *slot, __u32 len)
{
	__u32 device = slot->device;
	struct pod_port *port;
	struct shortcut *s;

	if (len <= slot->longest && !slot->too_long)
		return slot->longest;

	s = find_shortcut(&slot->t, slot->v6);
	port = bpf_map_lookup_elem(&short_pods, &device);
	if (port && port->epoch == slot->epoch && port->longest > len) {
		len = port->longest;
	} else if (port) {
		port->longest = len;
		port->epoch = slot->epoch;
	}

	if (s && s->epoch == slot->epoch && s->device == slot->device && len > s->longest)
		s->longest = len;
	return len;
}

/* Learns from a packet that has left OVS, if it is the one that the slot remembers. */
static __always_inline void learn_shortcut(struct __sk_buff *skb, struct slot *slot, __u64 now)
{
	struct tuple out, wire = {};
	struct shortcut_counts *counts;
	struct shortcut *s;
	struct plain p;
	__u32 len;

	if (!plain(skb, &p, &out, ORIGIN_POD) || !is_of_slot(skb, &p, slot))
		return;
	/* a Service may have changed the port */
	if (is_geneve_port(p.proto, out.dport))
		return;

	slot->hops -= p.hops; /* from now on the decrement of TTL or hop limit by OVS */
	if (slot->hops > MAX_HOPS || slot->epoch != current_epoch() ||
	    slot->print != print_of(skb, &p))
		return;

	wire.src = out.dst;
	wire.dst = out.src;
	wire.sport = out.dport;
	wire.dport = out.sport;
	wire.proto = out.proto;
	wire.origin = ORIGIN_WIRE;

	s = find_shortcut(&wire, slot->v6);
	if (!s || !is_learned_in(s, slot)) {
		learn_in(&wire, slot, s);
		return;
	}

	/* the connection ends, or begins anew: neither direction has a valid entry */
	if (p.flags & (TCP_ENDS | TCP_SYN)) {
		s->until = 0;
		s->seen = 0;
		return;
	}

	len = learn_length(slot, ip_len(skb, &p));
	/* see short.h: a packet from the wire must have entered OVS before this one of the pod */
	if (s->seen != seen_in(slot->epoch))
		return;

	/* both directions have gone through OVS: renew both leases */
	s->seen = 0;
	slot->used = s->used;
	s->used = 0;
	s->epoch = slot->epoch;
	s->until = now + lease_ns;
	s->renewals++;
	counts = counts_of_cpu();
	if (counts)
		counts->renewed++;
	learn_out(slot, &out, p.eth, len, now);
}

/* Handles a pod's packet that OVS has sent to the uplink, with its final reason. */
static __noinline int leaves_ovs(struct __sk_buff *skb, __u32 reason)
{
	__u32 number = skb->tc_index - 1;
	__u64 now = bpf_ktime_get_coarse_ns();
	struct slot *slot;

	skb->tc_index = 0;
	slot = take_slot(number, now);
	if (!slot)
		return 0;

	if (reason == REASON_OUT)
		learn_shortcut(skb, slot, now);
	slot->at = SLOT_FREE;
	return 0;
}

#endif /* __LEARN_H */
