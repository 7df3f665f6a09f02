/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Whose a packet is: each function returns the one reason that decides, in
 * the order that doc.go tells. Nothing here counts or acts.
 */
#ifndef __VERDICT_H
#define __VERDICT_H

#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"

#define NSEC_PER_SEC 1000000000ULL
#define ICMP_TIMEOUT (60 * NSEC_PER_SEC) /* conntrack forgets after 30 s */
#define FRAG_TIMEOUT (30 * NSEC_PER_SEC) /* as the kernel's reassembly */

#define TCP_FLAGS_OFFSET 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

struct arp_packet {
	__be16 htype;
	__be16 ptype;
	__u8 hlen;
	__u8 plen;
	__be16 op;
	__u8 sha[6];
	__be32 spa;
	__u8 tha[6];
	__be32 tpa;
} __attribute__((packed));

#define ARP_OP_REQUEST 1
#define ARP_OP_REPLY 2

static __always_inline void ns_key(struct ns_key *k, const struct packet *p)
{
	k->remote = p->src;
	k->id = is_icmp(p) ? p->echo_id : 0;
	k->proto = p->proto;
	k->pad = 0;
}

/* Did OVN begin this exchange, and no longer than so many nanoseconds ago? */
static __always_inline int seen_in_ns(const struct ns_key *k, __u64 timeout)
{
	struct seen *s = bpf_map_lookup_elem(&ns, k);

	return s && (!timeout || bpf_ktime_get_ns() - s->ns < timeout);
}

/* p->src is the remote side. Only echo identifiers are used again by others soon. */
static __always_inline int in_ns(const struct packet *p)
{
	struct ns_key k;

	ns_key(&k, p);
	return seen_in_ns(&k, is_icmp(p) ? ICMP_TIMEOUT : 0);
}

static __always_inline int lookup_tcp(struct __sk_buff *skb, struct bpf_sock_tuple *t, __u32 len)
{
	struct bpf_sock *sk;
	int owns;

	sk = bpf_skc_lookup_tcp(skb, t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	owns = sk->state != BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return owns;
}

static __always_inline int lookup_udp(struct __sk_buff *skb, struct bpf_sock_tuple *t, __u32 len)
{
	struct bpf_sock *sk;

	sk = bpf_sk_lookup_udp(skb, t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

/* Does a socket of the host's own p->dport? Asked where its gate bit is set. */
static __noinline int host_socket(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock_tuple t = {};
	struct port_bits *gate;
	__u32 zero = 0, len;

	gate = bpf_map_lookup_elem(&host_sockets, &zero);
	if (!gate || (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP))
		return 0;
	if (!test_port(p->proto == IPPROTO_TCP ? gate->tcp : gate->udp, bpf_ntohs(p->dport)))
		return 0;
	if (p->v6) {
		__builtin_memcpy(t.ipv6.saddr, &p->src, sizeof(p->src));
		__builtin_memcpy(t.ipv6.daddr, &p->dst, sizeof(p->dst));
		t.ipv6.sport = p->sport;
		t.ipv6.dport = p->dport;
		len = sizeof(t.ipv6);
	} else {
		t.ipv4.saddr = p->src.w[3];
		t.ipv4.daddr = p->dst.w[3];
		t.ipv4.sport = p->sport;
		t.ipv4.dport = p->dport;
		len = sizeof(t.ipv4);
	}
	if (p->proto == IPPROTO_TCP)
		return lookup_tcp(skb, &t, len);
	return lookup_udp(skb, &t, len);
}

static __always_inline int is_service(const struct packet *p)
{
	struct service_key k = {};

	if (!test_port(service_ports, bpf_ntohs(p->dport)))
		return 0;
	k.addr = p->dst;
	k.port = p->dport;
	k.proto = p->proto;
	return bpf_map_lookup_elem(&services, &k) != NULL;
}

static __always_inline int is_pure_syn(struct __sk_buff *skb, const struct packet *p)
{
	__u8 flags;

	if (p->proto != IPPROTO_TCP || bpf_skb_load_bytes(skb, p->l4 + TCP_FLAGS_OFFSET, &flags, 1))
		return 0;
	return (flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) == TCP_SYN;
}

/* By port. quoted: p is what an ICMP error quotes, turned round. */
static __noinline int port_owner(struct __sk_buff *skb, const struct packet *p, int quoted)
{
	if (is_service(p))
		return REASON_SERVICE;
	if (!is_node(&p->dst))
		return is_host(&p->dst) ? REASON_DEFAULT : REASON_NOT_OURS;
	if (!in_snat_range(bpf_ntohs(p->dport)))
		return REASON_DEFAULT;
	if (!quoted && is_pure_syn(skb, p))
		return REASON_SNAT_SYN;
	if (host_socket(skb, p))
		return REASON_HOST_SOCKET;
	return REASON_SNAT_PORT;
}

static __always_inline int is_icmp_error(const struct packet *p)
{
	if (p->v6)
		return p->icmp_type < ICMPV6_INFO_FIRST;
	return p->icmp_type == ICMP_DEST_UNREACH || p->icmp_type == ICMP_SOURCE_QUENCH ||
	       p->icmp_type == ICMP_REDIRECT || p->icmp_type == ICMP_TIME_EXCEEDED ||
	       p->icmp_type == ICMP_PARAMETERPROB;
}

static __always_inline int is_echo_request(const struct packet *p)
{
	return p->icmp_type == (p->v6 ? ICMPV6_ECHO_REQUEST : ICMP_ECHO);
}

static __always_inline int is_echo_reply(const struct packet *p)
{
	return p->icmp_type == (p->v6 ? ICMPV6_ECHO_REPLY : ICMP_ECHOREPLY);
}

/* The rules for a packet, applied to the sender of the one it quotes. */
static __noinline int icmp_error(struct __sk_buff *skb, const struct packet *p)
{
	struct packet q = {};
	int ovn = 0;

	if (parse(skb, p->l4 + 8, &q, skb->protocol) || q.frag == FRAG_LATER)
		return REASON_ICMP_ERROR_HOST;
	reverse(&q);
	if (q.proto == IPPROTO_UDP && bpf_ntohs(q.sport) == cfg.geneve_port)
		/* its source port is a hash, and no claim to the SNAT range */
		ovn = cfg.has_encap && addr_eq(&q.dst, &cfg.encap);
	else if (has_ports(q.proto))
		ovn = port_owner(skb, &q, 1) >= REASON_OVN_FIRST;
	else if (is_node(&q.dst) && (!is_icmp(&q) || is_echo_request(&q)))
		ovn = in_ns(&q);
	return ovn ? REASON_ICMP_ERROR_OVN : REASON_ICMP_ERROR_HOST;
}

static __always_inline int icmp_owner(struct __sk_buff *skb, const struct packet *p)
{
	if (is_icmp_error(p))
		return icmp_error(skb, p);
	if (is_echo_reply(p) && is_node(&p->dst))
		return in_ns(p) ? REASON_ICMP_ECHO_REPLY_NS : REASON_ICMP_ECHO_REPLY;
	if (!is_host(&p->dst))
		return REASON_NOT_OURS;
	if (is_echo_request(p))
		return REASON_ICMP_ECHO;
	return is_echo_reply(p) ? REASON_ICMP_ECHO_REPLY : REASON_DEFAULT;
}

static __always_inline int owner(struct __sk_buff *skb, const struct packet *p)
{
	if (has_ports(p->proto))
		return port_owner(skb, p, 0);
	if (is_icmp(p))
		return icmp_owner(skb, p);
	if (is_node(&p->dst))
		return in_ns(p) ? REASON_PROTO_NS : REASON_DEFAULT;
	return is_host(&p->dst) ? REASON_DEFAULT : REASON_NOT_OURS;
}

static __always_inline void frag_key(struct frag_key *k, const struct packet *p)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->src = p->src;
	k->dst = p->dst;
	k->id = p->frag_id;
	k->proto = p->v6 ? 0 : p->proto;
}

static __noinline int later_fragment(const struct packet *p)
{
	struct frag_key k;
	struct seen *s;

	frag_key(&k, p);
	s = bpf_map_lookup_elem(&frags, &k);
	if (s && bpf_ktime_get_ns() - s->ns < FRAG_TIMEOUT)
		return REASON_FRAGMENT_OVN;
	return is_host(&p->dst) ? REASON_FRAGMENT : REASON_NOT_OURS;
}

/* Later fragments follow the first: remember OVN's, forget a reused id. */
static __noinline int first_fragment(const struct packet *p, int reason)
{
	struct seen now = { .ns = bpf_ktime_get_ns() };
	struct frag_key k;

	frag_key(&k, p);
	if (reason >= REASON_OVN_FIRST)
		bpf_map_update_elem(&frags, &k, &now, BPF_ANY);
	else
		bpf_map_delete_elem(&frags, &k);
	return reason;
}

static __always_inline int geneve(const struct packet *p)
{
	if (cfg.has_encap && addr_eq(&p->dst, &cfg.encap))
		return REASON_GENEVE_OVN;
	return is_host(&p->dst) ? REASON_GENEVE : -1;
}

/* What is for one IP address, whatever its ports say about the owner. */
static __always_inline int by_address(struct __sk_buff *skb, const struct packet *p)
{
	if (p->frag != FRAG_LATER && p->proto == IPPROTO_UDP &&
	    bpf_ntohs(p->dport) == cfg.geneve_port) {
		int reason = geneve(p);

		if (reason >= 0)
			return reason;
	}
	if (skb->pkt_type != PACKET_HOST)
		return REASON_MULTICAST;
	if (p->v6 && addr_eq(&p->dst, &cfg.gr_lla) && !is_host(&p->dst))
		return REASON_OVN_ADDRESS;
	return -1;
}

static __always_inline int nd(struct __sk_buff *skb, const struct packet *p)
{
	struct addr target;

	switch (p->icmp_type) {
	case ND_NEIGHBOR_ADVERT:
		return REASON_ND_ADVERT;
	case ND_ROUTER_ADVERT:
		return REASON_ROUTER_ADVERT;
	case ND_NEIGHBOR_SOLICIT:
		if (bpf_skb_load_bytes(skb, p->l4 + 8, &target, sizeof(target)))
			return REASON_MALFORMED;
		if (is_host(&target))
			return REASON_ND_SOLICIT;
		if (addr_eq(&target, &cfg.gr_lla))
			return REASON_ND_SOLICIT_OVN;
		return REASON_ND_OTHER;
	}
	return REASON_ND_OTHER;
}

static __always_inline int is_nd(const struct packet *p)
{
	return p->v6 && is_icmp(p) && p->frag == FRAG_NONE && p->icmp_type >= ND_ROUTER_SOLICIT &&
	       p->icmp_type <= ND_REDIRECT;
}

static __noinline int arp(struct __sk_buff *skb)
{
	struct arp_packet a;
	struct addr target;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &a, sizeof(a)))
		return REASON_MALFORMED;
	if (a.op == bpf_htons(ARP_OP_REPLY))
		return REASON_ARP_REPLY;
	if (a.op != bpf_htons(ARP_OP_REQUEST))
		return REASON_ARP_OTHER;
	map4(&target, a.tpa);
	if (is_host(&target))
		return REASON_ARP_REQUEST;
	return a.spa == a.tpa ? REASON_ARP_GRATUITOUS : REASON_ARP_OTHER;
}

static __noinline int ip(struct __sk_buff *skb)
{
	struct packet p = {};
	int reason;

	if (parse(skb, ETH_HLEN, &p, skb->protocol))
		return REASON_MALFORMED;
	if (is_nd(&p))
		return nd(skb, &p);
	reason = by_address(skb, &p);
	if (reason < 0)
		reason = p.frag == FRAG_LATER ? later_fragment(&p) : owner(skb, &p);
	if (p.frag == FRAG_FIRST)
		return first_fragment(&p, reason);
	return reason;
}

/* Everything that arrives at the uplink, in full. Not static: see parse(). */
__noinline int from_wire(struct __sk_buff *skb)
{
	/* a tag is another network, though it may use the same addresses */
	if (skb->vlan_present)
		return REASON_VLAN;
	if (skb->pkt_type > PACKET_MULTICAST)
		return REASON_OTHER_MAC;
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return arp(skb);
	if (skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6))
		return ip(skb);
	return REASON_NOT_IP;
}

#endif /* __VERDICT_H */
