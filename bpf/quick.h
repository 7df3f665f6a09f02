/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Short paths for most of the traffic. They need one bounds check for IPv4, and one more for IPv6,
 * for TCP to the SNAT range and for UDP from OVN. Packets that they cannot decide take the full
 * path in verdict.h or out.h. Only the full path defines the behaviour; the short paths must agree
 * with it.
 */
#ifndef __QUICK_H
#define __QUICK_H

#include <stddef.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "out.h"
#include "parse.h"
#include "prefix.h"
#include "verdict.h"

#define UNSURE -1 /* the full path decides */

/* The transport header of an unfragmented packet to the node's own address. */
struct quick {
	__u8 proto, v6;
	struct tcphdr *tcp; /* or UDP, or ICMP: at least eight bytes are present */
	void *end;
};

/* Looks an address up after a hit in the digest, which may be a false positive. */
static __always_inline int is_internal_quick4(__be32 ip)
{
	struct addr a;

	map4(&a, ip);
	return network_of(&a) == NETWORK_INTERNAL;
}

/*
 * Decides packets to a TCP frontend of OVN. If a host socket other than a listener has the packet's
 * addresses and ports, the packet may be the host's, and the full path decides: see is_of_host().
 * The IP header is directly before tcp, without options or extension headers.
 *
 * The function is not inline, to keep its tuple out of the caller's frame. Otherwise, the stacks of
 * a full path's calls would exceed the 512 bytes of Linux 6.1. Its arguments are parts of struct
 * quick, because a pointer to it would put the struct on the stack, too.
 */
static __noinline int quick_service(struct __sk_buff *skb, const struct tcphdr *tcp, int v6)
{
	struct service_key k = { .port = tcp->dest, .proto = IPPROTO_TCP };
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	__u32 state, len;
	__u8 *owner;

	k.addr = v6 ? cfg.node6 : cfg.node4_mapped;
	owner = bpf_map_lookup_elem(&services, &k);
	if (!owner || *owner != SERVICE_OVN || cfg.local)
		return UNSURE;

	if (v6) {
		const struct ipv6hdr *ip6 = (void *)tcp - sizeof(*ip6);

		__builtin_memcpy(t.ipv6.saddr, &ip6->saddr, sizeof(t.ipv6.saddr));
		__builtin_memcpy(t.ipv6.daddr, &k.addr, sizeof(t.ipv6.daddr));
		t.ipv6.sport = tcp->source;
		t.ipv6.dport = tcp->dest;
		len = sizeof(t.ipv6);
	} else {
		t.ipv4.saddr = ((struct iphdr *)tcp - 1)->saddr;
		t.ipv4.daddr = k.addr.w[3];
		t.ipv4.sport = tcp->source;
		t.ipv4.dport = tcp->dest;
		len = sizeof(t.ipv4);
	}

	sk = bpf_skc_lookup_tcp(skb, &t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return REASON_SERVICE;

	state = sk->state;
	bpf_sk_release(sk);
	return state == BPF_TCP_LISTEN ? REASON_SERVICE : UNSURE;
}

/* Decides packets to the SNAT range that open no connection and need no socket lookup. */
static __always_inline int quick_snat(const struct quick *q, __u16 port)
{
	struct port_bits *gate;
	__u32 zero = 0;

	if (q->proto == IPPROTO_TCP && ((void *)(q->tcp + 1) > q->end || q->tcp->syn))
		return UNSURE;
	gate = bpf_map_lookup_elem(&host_sockets, &zero);
	if (!gate || test_port(q->proto == IPPROTO_TCP ? gate->tcp : gate->udp, port))
		return UNSURE;
	return REASON_SNAT_PORT;
}

/* Decides an echo reply to the node by its exchange. */
static __always_inline int quick_reply(const struct ns_key *k)
{
	return seen_in_ns(k, ICMP_TIMEOUT) ? REASON_ICMP_ECHO_REPLY_NS : REASON_ICMP_ECHO_REPLY;
}

static __always_inline int quick_echo4(const struct iphdr *ip)
{
	const struct l4_start *h = (void *)(ip + 1);
	struct ns_key k = { .id = h->echo_id, .proto = IPPROTO_ICMP };

	if (h->type == ICMP_ECHO)
		return REASON_ICMP_ECHO;
	if (h->type != ICMP_ECHOREPLY)
		return UNSURE;
	map4(&k.remote, ip->saddr);
	return quick_reply(&k);
}

static __always_inline int quick_echo6(const struct ipv6hdr *ip6)
{
	const struct l4_start *h = (void *)(ip6 + 1);
	struct ns_key k = { .id = h->echo_id, .proto = IPPROTO_ICMPV6 };

	if (h->type == ICMPV6_ECHO_REQUEST)
		return REASON_ICMP_ECHO;
	if (h->type != ICMPV6_ECHO_REPLY)
		return UNSURE;
	__builtin_memcpy(&k.remote, &ip6->saddr, sizeof(k.remote));
	return quick_reply(&k);
}

/*
 * Decides TCP and UDP to the node's own address by the destination port, as port_owner() does. If
 * the port's bit in special_ports is clear, no frontend, connection in takeover or BFD session has
 * the port, so the lookups of port_owner() for these are not needed.
 */
static __always_inline int quick_port(struct __sk_buff *skb, const struct quick *q)
{
	__u16 port = bpf_ntohs(q->tcp->dest);

	if (q->proto == IPPROTO_UDP) {
		if (port == cfg.geneve_port)
			return REASON_GENEVE;
	} else if (q->proto != IPPROTO_TCP) {
		return UNSURE;
	}

	if (test_port(special_ports, port))
		return q->proto == IPPROTO_TCP ? quick_service(skb, q->tcp, q->v6) : UNSURE;
	return in_snat_range(port) ? quick_snat(q, port) : REASON_DEFAULT;
}

static __always_inline int quick_ip6(struct __sk_buff *skb, struct quick *q, void *l3)
{
	struct ipv6hdr *ip6 = l3;
	const __u64 *dst = (void *)&ip6->daddr, *node = (void *)&cfg.node6;

	q->v6 = 1;
	q->tcp = (void *)(ip6 + 1);
	if ((void *)q->tcp + sizeof(struct udphdr) > q->end)
		return UNSURE;

	if (ip6->version != 6 || dst[0] != node[0] || dst[1] != node[1] || !cfg.has_node6)
		return UNSURE;
	if (may_be_internal6(ip6->saddr.in6_u.u6_addr32[0], ip6->saddr.in6_u.u6_addr32[1]) &&
	    network_of((void *)&ip6->saddr) == NETWORK_INTERNAL)
		return UNSURE;

	if (ip6->nexthdr == IPPROTO_ICMPV6)
		return quick_echo6(ip6);
	q->proto = ip6->nexthdr;
	return quick_port(skb, q);
}

/*
 * Decides packets from the wire. may_be_tagged: the gateway network may have a VLAN tag, which is
 * never so in layout direct. It is constant in each program, so layout direct saves the tests.
 */
static __always_inline int quick_from_wire(struct __sk_buff *skb, int may_be_tagged)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *proto = data + offsetof(struct ethhdr, h_proto);
	struct iphdr *ip = data + ETH_HLEN;
	struct quick q = { .tcp = (void *)(ip + 1), .end = end };

	if ((void *)q.tcp + sizeof(struct udphdr) > end || skb->pkt_type != PACKET_HOST)
		return UNSURE;
	if (may_be_tagged ? is_foreign(skb) : skb->vlan_present)
		return UNSURE;

	if (*proto != bpf_htons(ETH_P_IP))
		return *proto == bpf_htons(ETH_P_IPV6) ? quick_ip6(skb, &q, ip) : UNSURE;

	if (ip->daddr != cfg.node4 || !ip->daddr || *(__u8 *)ip != IP4_PLAIN)
		return UNSURE;
	if (ip->frag_off & bpf_htons(IP_MF | IP_OFFSET))
		return UNSURE;
	if (may_be_internal4(ip->saddr) && is_internal_quick4(ip->saddr))
		return UNSURE;

	if (ip->protocol == IPPROTO_ICMP)
		return quick_echo4(ip);
	q.proto = ip->protocol;
	return quick_port(skb, &q);
}

/* In the format of node_mac. Two loads, because a MAC address is only aligned to two bytes. */
static __always_inline __u64 source_mac(const void *eth)
{
	const void *mac = eth + ETH_ALEN;

	return *(__u32 *)mac | (__u64) * (__u16 *)(mac + 4) << 32;
}

/*
 * Returns UNSURE if a rule for UDP may apply to a packet from OVN: if it may belong to a tunnel or
 * to BFD, or if a host socket may use its source port. Otherwise returns REASON_OUT.
 */
static __always_inline int quick_udp_out(const struct udphdr *udp, void *end)
{
	struct port_bits *gate;
	__u32 zero = 0;

	if ((void *)(udp + 1) > end || cfg.has_encap || cfg.bfd)
		return UNSURE;
	if (is_geneve_port(IPPROTO_UDP, udp->dest))
		return UNSURE;

	gate = bpf_map_lookup_elem(&host_sockets, &zero);
	if (!gate || test_port(gate->udp, bpf_ntohs(udp->source)))
		return UNSURE;
	return REASON_OUT;
}

/*
 * Decides TCP and UDP from the node's MAC address by guard4(). Returns UNSURE if another rule of
 * the full path may apply: if the packet may be to the host or another node, from a Service, or
 * from a former address of the node, or if quick_udp_out() is unsure.
 */
static __always_inline int quick_out4(const struct iphdr *ip, void *end)
{
	if (may_be_host(ip->daddr) || *(__u8 *)ip != IP4_PLAIN)
		return UNSURE;
	if (ip->protocol != IPPROTO_TCP &&
	    (ip->protocol != IPPROTO_UDP || quick_udp_out((void *)(ip + 1), end) == UNSURE))
		return UNSURE;

	if (has_former && ip->saddr != cfg.node4)
		return UNSURE;
	if (in_prefixes4(ip->saddr, cfg.svc4, cfg.svc4_count))
		return UNSURE;
	return guard4(ip->saddr, ip->daddr);
}

static __always_inline int quick_out6(const struct ipv6hdr *ip6, void *end)
{
	const __be32 *w = ip6->daddr.in6_u.u6_addr32;

	if ((void *)(ip6 + 1) > end || may_be_host(w[0] ^ w[1] ^ w[2] ^ w[3]) || ip6->version != 6)
		return UNSURE;
	if (ip6->nexthdr != IPPROTO_TCP &&
	    (ip6->nexthdr != IPPROTO_UDP || quick_udp_out((void *)(ip6 + 1), end) == UNSURE))
		return UNSURE;

	if (has_former && !addr_eq((void *)&ip6->saddr, &cfg.node6))
		return UNSURE;
	if (in_prefixes6((void *)&ip6->saddr, cfg.svc6, cfg.svc6_count))
		return UNSURE;
	return guard6((void *)&ip6->saddr, (void *)&ip6->daddr);
}

/*
 * Decides packets from OVN, except in local gateway mode, which has further rules. Its reasons are
 * those of guard4().
 */
static __always_inline int quick_from_ovn(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *proto = data + offsetof(struct ethhdr, h_proto);
	struct iphdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end || cfg.local || source_mac(data) != cfg.node_mac)
		return UNSURE;
	if (skb->vlan_present && !has_our_tag(skb))
		return UNSURE;

	if (*proto == bpf_htons(ETH_P_IP))
		return quick_out4(ip, end);
	return *proto == bpf_htons(ETH_P_IPV6) ? quick_out6((void *)ip, end) : UNSURE;
}

/*
 * Decides untagged IPv4 packets of the host, unless they are to a Service or to a masquerade
 * network. Most packets of the host are such packets.
 */
static __always_inline int quick_from_host(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__be16 *proto = data + offsetof(struct ethhdr, h_proto);
	struct iphdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end || *proto != bpf_htons(ETH_P_IP) || skb->vlan_present)
		return UNSURE;
	if (in_prefixes4(ip->daddr, cfg.svc4, cfg.svc4_count) ||
	    in_prefixes4(ip->daddr, cfg.masq4, cfg.masq4_count))
		return UNSURE;
	return REASON_HOST_OUT;
}

#endif /* __QUICK_H */
