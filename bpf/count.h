/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Counts packets and bytes, per CPU: each packet once by its reason, in act.h only, and by Service.
 */
#ifndef __COUNT_H
#define __COUNT_H

#include <linux/bpf.h>
#include <linux/udp.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "segment.h"

#define GENEVE_HLEN 8
#define GENEVE_OPT_LEN 0x3f /* in words of four bytes, RFC 8926 */

/* Returns the length of the headers that each segment of a GSO packet has on the wire. */
static __noinline int gso_header_len(struct __sk_buff *skb)
{
	struct packet p = {}, in = {};
	__be16 proto;
	__u32 off;
	__u8 opts;

	if (parse(skb, ETH_HLEN, &p, skb->protocol))
		return 0;
	if (!is_geneve_port(p.proto, p.dport))
		return p.l4 + l4_len(skb, &p);

	/* the segments of a tunnel packet repeat the inner headers, too */
	if (bpf_skb_load_bytes(skb, p.l4 + sizeof(struct udphdr), &opts, 1))
		return 0;
	off = p.l4 + sizeof(struct udphdr) + GENEVE_HLEN + (opts & GENEVE_OPT_LEN) * 4;
	/* off: of the inner Ethernet header, whose bytes 12 and 13 are the EtherType */
	if (bpf_skb_load_bytes(skb, off + 12, &proto, 2) || parse(skb, off + ETH_HLEN, &in, proto))
		return p.l4 + sizeof(struct udphdr);
	return in.l4 + l4_len(skb, &in);
}

/* Adds the packet to a cell, a GSO packet as its segments. */
static __always_inline void add(struct __sk_buff *skb, struct cell *c)
{
	add_packet(skb, c);
	if (skb->gso_size)
		add_segments(skb, c, gso_header_len(skb));
}

/* Counts the packet by its reason. */
static __always_inline void count(struct __sk_buff *skb, __u32 reason)
{
	struct cells *cells;
	__u32 zero = 0;

	cells = bpf_map_lookup_elem(&counters, &zero);
	if (cells)
		add(skb, &cells->reason[reason]);
}

/* Adds the packet to the cell of its frontend's Service port, if that has one. */
static __noinline int add_to_service(struct __sk_buff *skb)
{
	struct packet p = {};
	struct service_key k = {};
	struct cell *c;
	__u32 *slot;

	if (parse(skb, ETH_HLEN, &p, skb->protocol))
		return 0;

	k.addr = p.dst;
	k.port = p.dport;
	k.proto = p.proto;
	slot = bpf_map_lookup_elem(&service_slots, &k);
	c = slot ? bpf_map_lookup_elem(&service_counts, slot) : NULL;
	if (c)
		add(skb, c);

	return 0;
}

/* Counts the packet for its Service port, in addition to the reason. */
static __always_inline void count_service(struct __sk_buff *skb)
{
	if (count_services)
		add_to_service(skb);
}

#endif /* __COUNT_H */
