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

#define ALL_TRIES 4
#define TRY_EVERY 8

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

	i = i * 0x9e3779b1 >> 20;
	return bpf_map_lookup_elem(&unanswered, &i);
}

/* The same for a connection without an entry, as long as its packets follow closely. */
static __always_inline int may_be_answered(const struct tuple *t, __u64 now)
{
	__u32 *cell = unanswered_of(t), since = now >> 30 << 8;
	__u8 tries;
	int is;

	if (!cell)
		return 1;

	tries = (*cell & ~0xffU) == since ? *cell : 0;
	is = is_worth_a_try(&tries);
	*cell = since | tries;
	return is;
}

/* Remembers a packet on its way into OVS. */
static __noinline int enters_ovs(struct __sk_buff *skb, const struct plain *p,
				 const struct tuple *t, __u64 now, int too_long)
{
	__u32 device = skb->ifindex, number;
	struct shortcut_counts *counts;
	struct pod_port *port;
	struct slot *s;

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

	s->t = *t;
	copy_mac(s->macs, p->eth + ETH_ALEN);
	copy_mac(s->macs + ETH_ALEN, p->eth);

	s->epoch = current_epoch();
	s->device = device;
	s->mtu = port->mtu;
	s->number = port->number;
	s->longest = port->epoch == s->epoch ? port->longest : 0;

	s->len = skb->len;
	s->priority = skb->priority;
	s->sequence = sequence_of(p);
	s->start = *(__u32 *)p->ip;
	s->id = id_of(p);

	s->hops = p->hops;
	s->flags = p->flags;
	s->v6 = p->v6;
	s->too_long = too_long;
	s->print = print_of(skb, p);

	/* written last, because it ends SLOT_BUSY */
	s->at = now;
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

/* Reports whether w is the entry for packets from the wire as OVS translates now. */
static __always_inline int is_learned_in(const struct shortcut *w, const struct slot *o)
{
	return addr_eq(&w->src, &o->t.dst) && addr_eq(&w->dst, &o->t.src) &&
	       w->sport == o->t.dport && w->dport == o->t.sport && w->hops == o->hops &&
	       same_macs(w->macs, o->macs) && w->device == o->device && w->number == o->number &&
	       w->longest == o->mtu;
}

/*
 * Writes the entry for packets from the wire as OVS translates now. It is not valid yet. The entry
 * has the MAC addresses that the pod used, exchanged. old: the entry in its place, or NULL.
 */
static __noinline int learn_in(const struct tuple *wire, const struct slot *o, struct shortcut *old)
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
	copy_macs(n.macs, o->macs);

	contradicted(old, &n);
	set_diffs(&n, wire, o->v6);
	put_shortcut(wire, o->v6, &n, !old);
	return 0;
}

/* Reports whether s is the entry for packets of the pod as OVS translates now. */
static __always_inline int is_learned_out(const struct shortcut *s, const struct slot *o,
					  const struct tuple *out, const void *macs)
{
	return addr_eq(&s->src, &out->src) && addr_eq(&s->dst, &out->dst) &&
	       s->sport == out->sport && s->dport == out->dport && s->hops == o->hops &&
	       same_macs(s->macs, macs) && s->device == o->device && is_mac(s->from, o->macs);
}

/* Renews or writes the entry for packets of the pod. out: as they are after OVS. */
static __noinline int learn_out(const struct slot *o, const struct tuple *out, const void *macs,
				__u32 len, __u64 now)
{
	struct shortcut n = {}, *old = find_shortcut(&o->t, o->v6);
	__u32 *cell;

	if (old && old->epoch == o->epoch && old->longest > len)
		len = old->longest;

	if (old && is_learned_out(old, o, out, macs)) {
		/* an entry of another epoch is invalid until its epoch is set, so that is last */
		old->longest = len;
		old->seen = 0;
		if (o->used)
			old->tries = 0;
		old->renewals = old->epoch == o->epoch ? old->renewals + 1 : 0;
		old->until = now + lease_ns;
		old->epoch = o->epoch;
		return 0;
	}

	n.until = now + lease_ns;
	n.epoch = o->epoch;
	n.device = o->device;
	n.src = out->src;
	n.dst = out->dst;
	n.sport = out->sport;
	n.dport = out->dport;
	copy_macs(n.macs, macs);
	copy_mac(n.from, o->macs);
	n.longest = len;
	n.hops = o->hops;
	set_diffs(&n, &o->t, o->v6);

	contradicted(old, &n);
	if (old && old->epoch == n.epoch)
		n.renewals = old->renewals + 1;
	put_shortcut(&o->t, o->v6, &n, !old);

	cell = unanswered_of(&o->t);
	if (!old && cell)
		*cell = 0;

	return 0;
}

/*
 * Raises the length of packets that OVS is known to pass, of the connection and of the device.
 * Returns the device's.
 */
static __noinline __u32 learn_length(const struct slot *o, __u32 len)
{
	__u32 device = o->device;
	struct pod_port *port;
	struct shortcut *s;

	if (len <= o->longest && !o->too_long)
		return o->longest;

	s = find_shortcut(&o->t, o->v6);
	port = bpf_map_lookup_elem(&short_pods, &device);
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
static __always_inline void learn_shortcut(struct __sk_buff *skb, struct slot *o, __u64 now)
{
	struct tuple out, wire = {};
	struct shortcut_counts *counts;
	struct shortcut *s;
	struct plain p;
	__u32 len;

	if (!plain(skb, &p, &out, ORIGIN_POD) || !is_of_slot(skb, &p, o))
		return;
	/* a Service may have changed the port */
	if (is_geneve_port(p.proto, out.dport))
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
	if (!s || !is_learned_in(s, o)) {
		learn_in(&wire, o, s);
		return;
	}

	if (p.flags & (TCP_ENDS | TCP_SYN)) {
		s->until = 0;
		s->seen = 0;
		return;
	}

	len = learn_length(o, ip_len(skb, &p));
	/* see short.h: a packet from the wire must have entered OVS before this one of the pod */
	if (s->seen != seen_in(o->epoch))
		return;

	s->seen = 0;
	o->used = s->used;
	s->used = 0;
	s->epoch = o->epoch;
	s->until = now + lease_ns;
	s->renewals++;
	counts = counts_of_cpu();
	if (counts)
		counts->renewed++;
	learn_out(o, &out, p.eth, len, now);
}

/* Handles a packet that OVS has sent, with its final reason. */
static __noinline int leaves_ovs(struct __sk_buff *skb, __u32 reason)
{
	__u32 number = skb->tc_index - 1;
	__u64 now = bpf_ktime_get_coarse_ns();
	struct slot *o;

	skb->tc_index = 0;
	o = take_slot(number, now);
	if (!o)
		return 0;

	if (reason == REASON_OUT)
		learn_shortcut(skb, o, now);
	o->at = SLOT_FREE;
	return 0;
}

#endif /* __LEARN_H */
