/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Sets the flow hash of packets for OVS. OVS asks the kernel for this hash, to find the flow's mask
 * in a cache. If the NIC has not provided a hash, the kernel would parse the packet again, at 15
 * times the cost.
 *
 * The hash has no secret key, so a sender can choose ports and addresses that give many flows the
 * same hash. Then they share a slot of OVS's cache, and OVS searches its masks for them as without
 * a cache. It still compares the whole key, so no packet takes another's flow.
 */
#ifndef __HASH_H
#define __HASH_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "parse.h"

/*
 * Every bit of the result depends on every bit of x. This is the mixer degski64, without its last
 * step, which changes only the lower half.
 */
static __always_inline __u32 mix(__u64 x)
{
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
	x = (x ^ x >> 32) * 0xd6e8feb86659fd93;
	return x >> 32;
}

static __always_inline void set_hash(struct __sk_buff *skb, __u32 addrs, __u32 ports)
{
	__u32 hash = mix((__u64)addrs << 32 | ports);

	bpf_set_hash(skb, hash ? hash : 1); /* 0 would mean no hash */
}

static __always_inline void hash_ipv6(struct __sk_buff *skb, const struct ipv6hdr *ip6, void *end)
{
	const __u32 *w = ip6->saddr.in6_u.u6_addr32, *ports = (void *)(ip6 + 1);

	if ((void *)(ports + 1) > end || !has_ports(ip6->nexthdr))
		return;
	/*
	 * Without the destination, to save instructions: it is one of the node's few addresses. The
	 * factors differ, so that equal words of an address do not cancel each other.
	 */
	set_hash(skb, w[0] ^ w[1] * 3 ^ w[2] * 5 ^ w[3] * 7, *ports);
}

/*
 * Sets the hash of a packet that has none, if its ports directly follow an IP header without
 * options. For other packets, OVS lets the kernel compute it.
 */
static __always_inline void ensure_hash(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *proto = data + offsetof(struct ethhdr, h_proto);
	struct iphdr *ip = data + ETH_HLEN;
	__u32 *ports = (void *)(ip + 1);

	if (skb->hash || (void *)(ports + 1) > end)
		return;
	if (*proto == bpf_htons(ETH_P_IPV6))
		return hash_ipv6(skb, (void *)ip, end);

	if (*proto != bpf_htons(ETH_P_IP) || *(__u8 *)ip != IP4_PLAIN || !has_ports(ip->protocol))
		return;
	/* only the first fragment has ports, and all fragments of a datagram need the same hash */
	if (!(ip->frag_off & bpf_htons(IP_MF | IP_OFFSET)))
		set_hash(skb, ip->saddr ^ ip->daddr * 3, *ports);
}

#endif /* __HASH_H */
