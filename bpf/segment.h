/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Counts a packet with its length, and a GSO packet as the segments that it becomes. */
#ifndef __SEGMENT_H
#define __SEGMENT_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/udp.h>
#include <bpf/bpf_helpers.h>

#include "parse.h"
#include "types.h"

/* Returns the length of the packet's transport header, or 0 if it is unknown. */
static __always_inline __u32 l4_len(struct __sk_buff *skb, const struct packet *p)
{
	__u8 doff;

	if (p->proto == IPPROTO_UDP)
		return sizeof(struct udphdr);
	if (p->proto != IPPROTO_TCP || bpf_skb_load_bytes(skb, p->l4 + 12, &doff, 1))
		return 0;
	return (doff >> 4) * 4;
}

/* Counts the packet once, with its length. */
static __always_inline void add_packet(struct __sk_buff *skb, struct cell *c)
{
	c->packets += 1;
	c->bytes += skb->len;
}

/*
 * Counts the segments of a GSO packet beyond the first. Each repeats header bytes. A virtual
 * machine's NIC provides their size, but the kernel does not derive their number from it.
 */
static __always_inline void add_segments(struct __sk_buff *skb, struct cell *c, __u32 header)
{
	__u32 segs = skb->gso_segs;
	__u64 more;

	if (!segs && skb->len > header)
		segs = (skb->len - header + skb->gso_size - 1) / skb->gso_size;
	more = segs > 1 ? segs - 1 : 0;
	c->packets += more;
	c->bytes += more * header;
}

#endif /* __SEGMENT_H */
