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
#include "neigh.h"
#include "parse.h"
#include "socket.h"

#define NSEC_PER_SEC 1000000000ULL
#define ICMP_TIMEOUT (60 * NSEC_PER_SEC) /* conntrack forgets after 30 s */
#define FRAG_TIMEOUT (30 * NSEC_PER_SEC) /* as the kernel's reassembly */

#define TCP_FLAGS_OFFSET 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

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
	if (is_mapped(&q, &q.dst))
		return REASON_ICMP_ERROR_HOST;
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

static __noinline int ip(struct __sk_buff *skb)
{
	struct packet p = {};
	int reason;

	if (parse(skb, ETH_HLEN, &p, skb->protocol) || is_mapped(&p, &p.dst))
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
