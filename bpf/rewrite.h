/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Applies a shortcut to a packet: addresses, ports, TTL and checksums, as OVS would. A checksum is
 * the complement of a sum of 16-bit words. It is not computed again: the shortcut has the
 * difference of this sum between old and new fields (RFC 1624), which is the same for all packets
 * of a tuple.
 */
#ifndef __REWRITE_H
#define __REWRITE_H

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "entry.h"
#include "plain.h"
#include "types.h"

/* Adds as checksums are added: the carry is added, too (ones' complement). */
static __always_inline __u32 add32(__u32 a, __u32 b)
{
	a += b;
	return a + (a < b);
}

/* Adds to sum the difference between new and old. */
static __always_inline __u32 diff32(__u32 sum, __u32 old, __u32 new)
{
	return add32(add32(sum, ~old), new);
}

/* Folds a sum of 32 bits to 16 bits. */
static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline __u32 diff_addr(__u32 sum, const struct addr *old, const struct addr *new)
{
	int i;

	for (i = 0; i < 4; i++)
		sum = diff32(sum, old->w[i], new->w[i]);
	return sum;
}

/* Returns both ports as one word. */
static __always_inline __u32 ports_of(const __be16 *sport)
{
	return *(const __u32 *)sport;
}

/*
 * Sets the differences of s for packets of t: of the addresses (addr_diff), of the ports
 * (port_diff), and of the addresses and the TTL or hop limit (ip_diff). Addresses, ports and hops
 * of s must be set.
 */
static __always_inline void set_diffs(struct shortcut *s, const struct tuple *t, int v6)
{
	__u32 old = ports_of(&t->sport), new = ports_of(&s->sport);

	s->addr_diff = diff_addr(diff_addr(0, &t->src, &s->src), &t->dst, &s->dst);
	s->port_diff = old == new ? 0 : diff32(0, old, new);
	/* the TTL is the first byte of its word, the hop limit the second */
	s->ip_diff = fold(add32(s->addr_diff, (__u16)~bpf_htons(v6 ? s->hops : s->hops << 8)));
}

/* Copies both MAC addresses of a frame. */
static __always_inline void copy_macs(void *to, const void *from)
{
	/* a single MAC address is aligned to two bytes only, but a pair is aligned to four */
	*(__u32 *)to = *(const __u32 *)from;
	*(__u32 *)(to + 4) = *(const __u32 *)(from + 4);
	*(__u32 *)(to + 8) = *(const __u32 *)(from + 8);
}

static __always_inline void copy_mac(void *to, const void *from)
{
	__u16 *t = to;
	const __u16 *f = from;

	t[0] = f[0];
	t[1] = f[1];
	t[2] = f[2];
}

static __always_inline int is_mac(const __u8 *a, const void *b)
{
	return *(__u32 *)a == *(__u32 *)b && *(__u16 *)(a + 4) == *(__u16 *)(b + 4);
}

/* Compares both MAC addresses of a frame. */
static __always_inline int same_macs(const void *a, const void *b)
{
	return *(const __u32 *)a == *(const __u32 *)b &&
	       *(const __u32 *)(a + 4) == *(const __u32 *)(b + 4) &&
	       *(const __u32 *)(a + 8) == *(const __u32 *)(b + 8);
}

static __always_inline void rewrite4(struct iphdr *ip, const struct shortcut *s)
{
	__u32 sum = (__u16)~ip->check + s->ip_diff;

	sum = (sum & 0xffff) + (sum >> 16); /* once is enough: the sum has at most one carry */
	ip->check = ~sum;
	ip->ttl -= s->hops;
	ip->saddr = s->src.w[3];
	ip->daddr = s->dst.w[3];
}

static __always_inline void rewrite6(struct ipv6hdr *ip, const struct shortcut *s)
{
	ip->hop_limit -= s->hops;
	__builtin_memcpy(&ip->saddr, &s->src, sizeof(s->src));
	__builtin_memcpy(&ip->daddr, &s->dst, sizeof(s->dst));
}

/*
 * Rewrites the packet. Packet pointers are invalid afterwards.
 *
 * With CHECKSUM_COMPLETE, skb->csum is the NIC's sum of all bytes after the Ethernet header.
 * bpf_l4_csum_replace() adds the change of the transport checksum to it. In IPv4, new addresses and
 * TTL do not change the sum, because the header checksum changes by the opposite. IPv6 has no
 * header checksum, so bpf_csum_update() adds ip_diff. It fails harmlessly for other packets.
 */
static __always_inline void rewrite(struct __sk_buff *skb, struct plain *p,
				    const struct shortcut *s)
{
	__u32 addr_diff = s->addr_diff, port_diff = s->port_diff, ip_diff = s->ip_diff,
	      off = ETH_HLEN;
	__u64 flags = 0;
	int v6 = p->v6;

	off += v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	if (p->proto == IPPROTO_UDP) {
		off += UDP_CHECK_OFFSET;
		flags = BPF_F_MARK_MANGLED_0;
	} else {
		off += TCP_CHECK_OFFSET;
	}

	copy_macs(p->eth, s->macs);
	*(__u32 *)p->l4 = ports_of(&s->sport);
	if (v6)
		rewrite6(p->ip, s);
	else
		rewrite4(p->ip, s);

	bpf_l4_csum_replace(skb, off, 0, addr_diff, flags | BPF_F_PSEUDO_HDR);
	if (port_diff)
		bpf_l4_csum_replace(skb, off, 0, port_diff, flags);
	if (v6)
		bpf_csum_update(skb, ip_diff);
}

#endif /* __REWRITE_H */
