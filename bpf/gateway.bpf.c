// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * The gateway demultiplexer. One NIC, one address, two owners: the host and
 * OVN's gateway router. Each program goes packet -> reason -> act(), and act()
 * is the only way out.
 *
 * The two short functions in front decide the bulk of the traffic from one
 * bounds check; whatever they are not sure of takes the full way in verdict.h
 * and out.h, which alone define the behaviour: the short ones may only agree.
 */
#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "maps.h"
#include "parse.h"
#include "count.h"
#include "verdict.h"
#include "out.h"

char _license[] SEC("license") = "GPL";

/* For bpf2go: an enum that no map mentions is not in the type information. */
const enum reason *unused_reason __attribute__((unused));

#define UNSURE -1
#define IP4_PLAIN 0x45 /* version 4, no options */

static __always_inline int act(struct __sk_buff *skb, __u32 reason)
{
	if (reason >= REASON_OVN_FIRST && (!cfg.uplink || !cfg.bridge))
		reason = reason < REASON_OUT_FIRST ? REASON_PASS_UNCONFIGURED : REASON_NO_UPLINK;
	count(skb, reason);
	if (reason < REASON_OVN_FIRST)
		return TC_ACT_UNSPEC; /* TCX_NEXT: others on the hook still run */
	if (reason < REASON_BOTH_FIRST)
		return bpf_redirect(cfg.bridge, 0);
	if (reason < REASON_OUT_FIRST) {
		bpf_clone_redirect(skb, cfg.bridge, 0);
		return TC_ACT_UNSPEC;
	}
	if (reason < REASON_DROP_FIRST)
		return bpf_redirect(cfg.uplink, 0);
	return TC_ACT_SHOT;
}

/* The transport header, of a packet to the node's own address, and its ends. */
struct quick {
	__u8 proto;
	struct tcphdr *tcp; /* or UDP: the ports are in the same place */
	void *end;
};

/* In the SNAT range, where neither a connection begins nor a socket is to be asked. */
static __always_inline int quick_snat(struct __sk_buff *skb, const struct quick *q, __u16 port)
{
	struct port_bits *gate;
	__u32 zero = 0;

	if (skb->vlan_present)
		return UNSURE;
	if (q->proto == IPPROTO_TCP && ((void *)(q->tcp + 1) > q->end || q->tcp->syn))
		return UNSURE;
	gate = bpf_map_lookup_elem(&host_sockets, &zero);
	if (!gate || test_port(q->proto == IPPROTO_TCP ? gate->tcp : gate->udp, port))
		return UNSURE;
	return REASON_SNAT_PORT;
}

static __always_inline int quick_port(struct __sk_buff *skb, const struct quick *q)
{
	__u16 port = bpf_ntohs(q->tcp->dest);

	if (q->proto == IPPROTO_UDP) {
		if (port == cfg.geneve_port)
			return REASON_GENEVE;
	} else if (q->proto != IPPROTO_TCP) {
		return UNSURE;
	}
	if (test_port(service_ports, port))
		return UNSURE;
	return in_snat_range(port) ? quick_snat(skb, q, port) : REASON_DEFAULT;
}

static __always_inline int quick_ip6(struct __sk_buff *skb, void *l3, void *end)
{
	struct ipv6hdr *ip6 = l3;
	struct quick q = { .tcp = (void *)(ip6 + 1), .end = end };
	const __u64 *dst = (void *)&ip6->daddr, *node = (void *)&cfg.node6;

	if ((void *)q.tcp + sizeof(struct udphdr) > end)
		return UNSURE;
	if (ip6->version != 6 || dst[0] != node[0] || dst[1] != node[1] || !cfg.has_node6)
		return UNSURE;
	q.proto = ip6->nexthdr;
	return quick_port(skb, &q);
}

static __always_inline int quick_from_wire(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *proto = data + offsetof(struct ethhdr, h_proto);
	struct iphdr *ip = data + ETH_HLEN;
	struct quick q = { .tcp = (void *)(ip + 1), .end = end };

	if ((void *)q.tcp + sizeof(struct udphdr) > end || skb->pkt_type != PACKET_HOST)
		return UNSURE;
	if (*proto != bpf_htons(ETH_P_IP))
		return *proto == bpf_htons(ETH_P_IPV6) ? quick_ip6(skb, ip, end) : UNSURE;
	if (ip->daddr != cfg.node4 || !ip->daddr || *(__u8 *)ip != IP4_PLAIN)
		return UNSURE;
	if (ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return UNSURE;
	q.proto = ip->protocol;
	return quick_port(skb, &q);
}

/* As node_mac has it. Two loads: a MAC is only aligned to two bytes. */
static __always_inline __u64 source_mac(const void *eth)
{
	const void *mac = eth + ETH_ALEN;

	return *(__u32 *)mac | (__u64) * (__u16 *)(mac + 4) << 32;
}

static __always_inline int quick_from_ovn(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *proto = data + offsetof(struct ethhdr, h_proto);
	struct iphdr *ip = data + ETH_HLEN;
	struct ipv6hdr *ip6 = (void *)ip;

	if ((void *)(ip + 1) > end || cfg.has_encap || source_mac(data) != cfg.node_mac)
		return UNSURE;
	if (*proto == bpf_htons(ETH_P_IP)) {
		if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
			return UNSURE;
		return guard4(ip->saddr, ip->daddr);
	}
	if (*proto != bpf_htons(ETH_P_IPV6) || (void *)(ip6 + 1) > end)
		return UNSURE;
	if (ip6->nexthdr != IPPROTO_TCP && ip6->nexthdr != IPPROTO_UDP)
		return UNSURE;
	return guard6((void *)&ip6->saddr, (void *)&ip6->daddr);
}

/*
 * What a global function returns is any number to the verifier. That of 6.1
 * loses the bound in a 32-bit copy, so clang must not keep one from before.
 */
static __always_inline __u32 bounded_reason(__u64 reason)
{
	asm volatile("" : "+r"(reason));
	if (reason >= REASON_MAX)
		reason = REASON_DEFAULT;
	asm volatile("" : "+r"(reason));
	return reason;
}

SEC("tc")
int uplink_ingress(struct __sk_buff *skb)
{
	int reason = quick_from_wire(skb);

	if (reason != UNSURE)
		return act(skb, reason);
	return act(skb, bounded_reason(from_wire(skb)));
}

SEC("tc")
int bridge_ingress(struct __sk_buff *skb)
{
	int reason = quick_from_ovn(skb);

	if (reason != UNSURE)
		return act(skb, reason);
	return act(skb, bounded_reason(from_ovn(skb)));
}
