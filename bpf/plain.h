/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Packets that a shortcut can rewrite: whole TCP and UDP packets without IP options or extension
 * headers, with all headers in linear data.
 */
#ifndef __PLAIN_H
#define __PLAIN_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "entry.h"
#include "parse.h"
#include "port.h"

#define TCP_ENDS (TCP_FIN | TCP_RST)
#define TCP_DOFF_OFFSET 12
#define TCP_CHECK_OFFSET 16
#define UDP_CHECK_OFFSET 6

/* Such a packet: pointers to its headers, and the fields that are compared. */
struct plain {
	void *eth;
	void *ip;
	void *l4;
	__u32 header; /* bytes of the IP and transport headers */
	__u8 v6;
	__u8 proto;
	__u8 flags; /* of TCP, else 0 */
	__u8 hops;  /* TTL or hop limit */
};

/* Reads the transport header, of which eight bytes are present. Returns 0 if it is not plain. */
static __always_inline int plain_l4(struct plain *p, void *end)
{
	__u8 *tcp = p->l4;

	p->flags = 0;
	p->header = sizeof(struct udphdr);

	/* for the helpers 0 means no checksum */
	if (p->proto == IPPROTO_UDP)
		return ((struct udphdr *)p->l4)->check != 0;
	if (p->proto != IPPROTO_TCP || (void *)tcp + sizeof(struct tcphdr) > end)
		return 0;
	p->flags = tcp[TCP_FLAGS_OFFSET];
	p->header = (tcp[TCP_DOFF_OFFSET] >> 4) * 4;
	return 1;
}

/* Reads an IPv4 packet. The caller has checked that the header and eight bytes are present. */
static __always_inline int plain4(struct __sk_buff *skb, struct plain *p, struct tuple *t,
				  void *end)
{
	struct iphdr *ip = p->ip;

	if (*(__u8 *)ip != IP4_PLAIN || ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return 0;
	if (!ip->tot_len || bpf_ntohs(ip->tot_len) + ETH_HLEN > skb->len)
		return 0;

	p->l4 = ip + 1;
	p->v6 = 0;
	p->proto = ip->protocol;
	p->hops = ip->ttl;
	if (!plain_l4(p, end))
		return 0;

	p->header += sizeof(*ip);
	map4(&t->src, ip->saddr);
	map4(&t->dst, ip->daddr);
	return 1;
}

static __always_inline int plain6(struct __sk_buff *skb, struct plain *p, struct tuple *t,
				  void *end)
{
	struct ipv6hdr *ip = p->ip;

	p->l4 = ip + 1;
	if (p->l4 + sizeof(struct udphdr) > end || ip->version != 6)
		return 0;
	if (!ip->payload_len || bpf_ntohs(ip->payload_len) + ETH_HLEN + sizeof(*ip) > skb->len)
		return 0;

	p->v6 = 1;
	p->proto = ip->nexthdr;
	p->hops = ip->hop_limit;
	if (!plain_l4(p, end))
		return 0;

	p->header += sizeof(*ip);
	__builtin_memcpy(&t->src, &ip->saddr, sizeof(t->src));
	__builtin_memcpy(&t->dst, &ip->daddr, sizeof(t->dst));
	return 1;
}

/* Reads a packet and its tuple. Returns 0 if it is not plain. */
static __always_inline int plain(struct __sk_buff *skb, struct plain *p, struct tuple *t,
				 __u8 origin)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 proto;

	p->eth = data;
	p->ip = data + ETH_HLEN;
	if (p->ip + sizeof(struct iphdr) + sizeof(struct udphdr) > end)
		return 0;

	proto = ((struct ethhdr *)data)->h_proto;
	if (proto == bpf_htons(ETH_P_IP)) {
		if (!plain4(skb, p, t, end))
			return 0;
	} else if (proto != bpf_htons(ETH_P_IPV6) || !plain6(skb, p, t, end)) {
		return 0;
	}

	/* both ports, and then proto, origin and the padding, as one word each */
	*(__u32 *)&t->sport = *(__u32 *)p->l4;
	*(__u32 *)&t->proto = p->proto | origin << 8;
	return 1;
}

/* Returns the length of the longest IP packet that it becomes on the wire. */
static __always_inline __u32 ip_len(struct __sk_buff *skb, const struct plain *p)
{
	__u32 len = skb->len - ETH_HLEN, segment = skb->gso_size;

	/* clang would choose between two pointers, of which the verifier allows only one */
	asm volatile("" : "+r"(len), "+r"(segment));
	return segment ? segment + p->header : len;
}

#endif /* __PLAIN_H */
