/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Makes and renews shortcuts from packets of pods, before and after OVS. */
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

/* Remembers a packet on its way into OVS. */
static __noinline int enters_ovs(struct __sk_buff *skb)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 device = skb->ifindex, number;
	struct shortcut_counts *counts;
	struct pod_port *port;
	struct slot *s;
	struct plain p;
	struct tuple t;

	port = bpf_map_lookup_elem(&short_pods, &device);
	if (!port || !port->mtu || cfg.local || cfg.vlan || skb->mark)
		return 0;
	s = claim_slot(now, &number);
	if (!s) {
		counts = counts_of_cpu();
		if (counts)
			counts->unseen++;
		return 0;
	}
	if (!plain(skb, &p, &t, ORIGIN_POD)) {
		s->at = SLOT_FREE;
		return 0;
	}
	s->t = t;
	copy_macs(s->macs, p.eth);
	s->epoch = current_epoch();
	s->device = device;
	s->mtu = port->mtu;
	s->number = port->number;
	s->len = skb->len;
	s->priority = skb->priority;
	s->sequence = sequence_of(&p);
	s->start = *(__u32 *)p.ip;
	s->id = id_of(&p);
	s->hops = p.hops;
	s->flags = p.flags;
	s->v6 = p.v6;
	s->print = print_of(skb, &p);
	s->at = now;
	skb->tc_index = number + 1;
	return 0;
}

/*
 * Reports whether the entry translates as OVS does now. It does not compare device and length,
 * which are tests before the entry is used.
 */
static __always_inline int is_same(const struct shortcut *a, const struct shortcut *b)
{
	return addr_eq(&a->src, &b->src) && addr_eq(&a->dst, &b->dst) && a->sport == b->sport &&
	       a->dport == b->dport && a->hops == b->hops && same_macs(a->macs, b->macs);
}

/*
 * Counts an entry that OVS contradicts although it was in use until a moment ago and no change was
 * announced since. A busy connection's entry ends with its lease and is made again at once, so each
 * lease is compared. old may be NULL.
 */
static __always_inline void contradicted(const struct shortcut *old, const struct shortcut *now)
{
	struct shortcut_counts *counts;

	if (!old || !old->until || old->epoch != now->epoch || old->device != now->device ||
	    old->until + RECENT_NS < bpf_ktime_get_coarse_ns() || is_same(old, now))
		return;
	counts = counts_of_cpu();
	if (counts)
		counts->mismatched++;
}

/* Writes an entry. fresh: not in place of another. */
static __always_inline void put_shortcut(const struct tuple *t, int v6, struct shortcut *s,
					 int fresh)
{
	struct shortcut_counts *counts = counts_of_cpu();
	struct shortcut_key k;

	key_of(&k, t, v6);
	s->was_src = t->src;
	s->was_dst = t->dst;
	if (bpf_map_update_elem(&shortcuts, &k, s, BPF_ANY) || !counts)
		return;
	if (fresh)
		counts->created++;
}

/*
 * Keeps the entry for packets from the wire as OVS translates now. Returns 1 if old, which may be
 * NULL, is that entry already. Otherwise writes a new entry, which is not valid yet, and returns 0.
 * The entry has the MAC addresses that the pod used, exchanged.
 */
static __noinline int learn_in(const struct tuple *wire, struct slot *o, struct shortcut *old)
{
	struct shortcut n = {};

	n.epoch = o->epoch;
	n.device = o->device;
	n.number = o->number;
	n.src = o->t.dst;
	n.dst = o->t.src;
	n.sport = o->t.dport;
	n.dport = o->t.sport;
	n.hops = o->hops; /* now the difference */
	n.longest = o->mtu;
	__builtin_memcpy(n.macs, o->macs + 6, 6);
	__builtin_memcpy(n.macs + 6, o->macs, 6);
	if (old && old->device == n.device && old->number == n.number &&
	    old->longest == n.longest && is_same(old, &n))
		return 1;
	contradicted(old, &n);
	set_diffs(&n, wire, o->v6);
	put_shortcut(wire, o->v6, &n, !old);
	return 0;
}

/* Writes or renews the entry for packets of the pod. out: as they are after OVS. */
static __noinline int learn_out(struct slot *o, const struct tuple *out, const void *macs,
				__u32 len)
{
	struct shortcut n = {}, *old;
	__u64 now = bpf_ktime_get_coarse_ns();

	n.until = now + lease_ns;
	n.epoch = o->epoch;
	n.device = o->device;
	n.src = out->src;
	n.dst = out->dst;
	n.sport = out->sport;
	n.dport = out->dport;
	copy_macs(n.macs, macs);
	__builtin_memcpy(n.from, o->macs + 6, 6);
	n.longest = len;
	n.hops = o->hops;
	set_diffs(&n, &o->t, o->v6);
	old = find_shortcut(&o->t, o->v6);
	contradicted(old, &n);
	if (old && old->epoch == n.epoch) {
		n.renewals = old->renewals + 1;
		if (old->longest > n.longest)
			n.longest = old->longest;
	}
	put_shortcut(&o->t, o->v6, &n, !old);
	return 0;
}

/*
 * Raises the length of packets that OVS is known to pass, of the connection and of the device.
 * Returns the device's.
 */
static __noinline __u32 learn_length(const struct slot *o, __u32 len)
{
	struct shortcut *s = find_shortcut(&o->t, o->v6);
	__u32 device = o->device;
	struct pod_port *port = bpf_map_lookup_elem(&short_pods, &device);

	if (port && port->epoch == o->epoch && port->longest > len) {
		len = port->longest;
	} else if (port) {
		port->longest = len;
		port->epoch = o->epoch;
	}
	if (s && s->epoch == o->epoch && s->device == o->device && len > s->longest)
		s->longest = len;
	return len;
}

/* Learns from a packet of the slot that has left OVS. */
static __always_inline void learn_shortcut(struct __sk_buff *skb, struct slot *o)
{
	struct tuple out, wire = {};
	struct shortcut_counts *counts;
	struct shortcut *s;
	struct plain p;
	__u32 len;

	if (!plain(skb, &p, &out, ORIGIN_POD) || !is_of_slot(skb, &p, o))
		return;
	o->hops -= p.hops;
	if (o->hops > MAX_HOPS || o->epoch != current_epoch() || o->print != print_of(skb, &p))
		return;
	wire.src = out.dst;
	wire.dst = out.src;
	wire.sport = out.dport;
	wire.dport = out.sport;
	wire.proto = out.proto;
	wire.origin = ORIGIN_WIRE;
	s = find_shortcut(&wire, o->v6);
	if (!learn_in(&wire, o, s) || !s) /* the verifier does not know that 0 includes NULL */
		return;
	if (p.flags & (TCP_ENDS | TCP_SYN)) {
		s->until = 0;
		s->seen = 0;
		return;
	}
	len = learn_length(o, ip_len(skb, &p));
	if (s->seen != seen_in(o->epoch))
		return;
	s->seen = 0;
	s->epoch = o->epoch;
	s->until = bpf_ktime_get_coarse_ns() + lease_ns;
	s->renewals++;
	counts = counts_of_cpu();
	if (counts)
		counts->renewed++;
	learn_out(o, &out, p.eth, len);
}

/* Handles a packet that OVS has sent, with its final reason. */
static __noinline int leaves_ovs(struct __sk_buff *skb, __u32 reason)
{
	__u32 number = skb->tc_index - 1;
	struct slot *o;

	skb->tc_index = 0;
	o = take_slot(number, bpf_ktime_get_coarse_ns());
	if (!o)
		return 0;
	if (reason == REASON_OUT)
		learn_shortcut(skb, o);
	o->at = SLOT_FREE;
	return 0;
}

#endif /* __LEARN_H */
