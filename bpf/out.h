/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Decides packets that OVN sends to the uplink, and packets that the host sends through the bridge.
 * Each function returns a reason, in the order of docs/verdicts.md. Begin with from_ovn() and
 * from_host() at the end. They change only the map ns, which remembers exchanges of OVN for their
 * replies.
 */
#ifndef __OUT_H
#define __OUT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "maps.h"
#include "parse.h"
#include "prefix.h"
#include "verdict.h"

/*
 * Stops packets that OVN should have translated. Returns REASON_OUT for others. The short path in
 * quick.h uses it, too.
 */
static __always_inline int guard4(__be32 src, __be32 dst)
{
	if (in_prefixes4(dst, cfg.svc4, cfg.svc4_count) ||
	    in_prefixes4(dst, cfg.masq4, cfg.masq4_count))
		return REASON_SVC_LEAK;
	if (in_prefixes4(src, cfg.pod4, cfg.pod4_count) &&
	    !in_prefixes4(src, cfg.routable4, cfg.routable4_count))
		return REASON_UNSNATED;
	return REASON_OUT;
}

static __always_inline int guard6(const struct addr *src, const struct addr *dst)
{
	if (in_prefixes6(dst, cfg.svc6, cfg.svc6_count) ||
	    in_prefixes6(dst, cfg.masq6, cfg.masq6_count))
		return REASON_SVC_LEAK;
	if (in_prefixes6(src, cfg.pod6, cfg.pod6_count) &&
	    !in_prefixes6(src, cfg.routable6, cfg.routable6_count))
		return REASON_UNSNATED;
	return REASON_OUT;
}

/*
 * Reports whether a pod may send tunnel packets to the address. Nodes accept tunnel packets from
 * the addresses of other nodes, and OVN has given the pod's packet such an address.
 */
static __always_inline int may_tunnel_to(const struct addr *dst, int v6, int mapped)
{
	__u32 kind = mapped ? ADDR_OTHER : kind_of(dst);

	if (kind == ADDR_HOST || kind == ADDR_PEER)
		return 0;

	return v6 ? in_prefixes6(dst, cfg.tunnel6, cfg.tunnel6_count)
		  : in_prefixes4(dst->w[3], cfg.tunnel4, cfg.tunnel4_count);
}

/*
 * Decides tunnel packets. Returns -1 if other rules decide. Replies of pods are not excepted: a pod
 * may answer a request that it has forged itself. Not static: see parse().
 */
__noinline int tunnel_from_ovn(const struct packet *p)
{
	struct addr dst; /* see is_internal() */

	if (!p || !is_geneve(p))
		return -1;
	if (cfg.has_encap && addr_eq(&p->src, &cfg.encap))
		return REASON_ENCAP_OUT;

	dst = p->dst;
	return may_tunnel_to(&dst, p->v6, is_mapped(p, &dst)) ? -1 : REASON_POD_TUNNEL;
}

/* Reports whether ARP is from the tunnel address of the userspace datapath. */
static __noinline int encap_arp(struct __sk_buff *skb)
{
	struct arp_packet a;
	struct addr spa;

	if (!cfg.has_encap || bpf_skb_load_bytes(skb, ETH_HLEN, &a, sizeof(a)))
		return 0;
	map4(&spa, a.spa);
	return addr_eq(&spa, &cfg.encap);
}

/*
 * Adds an exchange without ports to the map ns, or renews it. Its replies have no local port that
 * would identify them.
 */
static __noinline int learn_exchange(const struct packet *reply)
{
	struct seen now = { .ns = bpf_ktime_get_ns() };
	struct ns_key k;
	struct seen *s;

	note(WOULD_LEARN, 1, &reply->src, is_icmp(reply) ? reply->echo_id : 0, reply->proto, NULL);
	if (DRY_RUN)
		return REASON_OUT_LEARNED;

	ns_key(&k, reply);
	s = bpf_map_lookup_elem(&ns, &k);
	if (s)
		s->ns = now.ns;
	else
		bpf_map_update_elem(&ns, &k, &now, BPF_ANY);
	return REASON_OUT_LEARNED;
}

/*
 * Reports whether a host socket would receive the reply, by the rules of port_owner() for UDP to
 * the node.
 */
static __always_inline int is_of_socket(struct __sk_buff *skb, const struct packet *reply)
{
	int owns;

	if (!in_snat_range(bpf_ntohs(reply->dport)) || !is_gated(reply) || service_owner(reply))
		return 0;
	owns = host_socket(skb, reply, 1);
	note(ASKED_SOCKET, owns, &reply->dst, reply->dport, reply->proto, NULL);
	return owns;
}

/*
 * Decides well-formed packets with an address of the router as source, and learns exchanges. If the
 * host would receive the replies, only the host may send. Otherwise a pod could impersonate it.
 */
static __always_inline int learn(struct __sk_buff *skb, const struct packet *p)
{
	struct packet reply = *p;

	reverse(&reply);
	if (p->proto == IPPROTO_UDP) {
		return p->frag != FRAG_LATER && is_of_socket(skb, &reply) ? REASON_HOST_OWNED
									  : REASON_OUT;
	}

	if (has_ports(p->proto))
		return REASON_OUT;
	if (is_icmp(p) && (p->frag == FRAG_LATER || !is_echo_request(p)))
		return REASON_OUT;
	if (!is_icmp(p) && is_host_proto(&reply))
		return REASON_HOST_OWNED;

	return learn_exchange(&reply);
}

/* Bytes after the Ethernet header; of a GSO packet those of one segment. */
static __always_inline __u32 l3_len(struct __sk_buff *skb)
{
	if (skb->gso_size)
		return skb->gso_size + gso_header_len(skb) - ETH_HLEN;
	return skb->len - ETH_HLEN;
}

/*
 * Reports whether the source is a former address of the node. OVN translates to it until OVN has
 * learned the new address.
 */
static __always_inline int is_former(const struct packet *p)
{
	return has_former && !is_mapped(p, &p->src) && kind_of(&p->src) == ADDR_FORMER;
}

/*
 * Reports whether ARP is from a former address. It would claim the address, which another machine
 * may already have.
 */
static __noinline int is_former_arp(struct __sk_buff *skb)
{
	struct arp_packet a;
	struct addr spa;

	if (!has_former || bpf_skb_load_bytes(skb, ETH_HLEN, &a, sizeof(a)))
		return 0;
	map4(&spa, a.spa);
	return kind_of(&spa) == ADDR_FORMER;
}

/* Decides ARP from the node's MAC address. */
static __always_inline int arp_may_leave(struct __sk_buff *skb)
{
	if (is_former_arp(skb))
		return REASON_UNSNATED;
	return !cfg.in_sync && announces_other4(skb) ? REASON_GARP_GUARD : REASON_NEIGHBOUR_OUT;
}

/* Decides neighbour discovery from the node's MAC address. */
static __always_inline int nd_may_leave(struct __sk_buff *skb, const struct packet *p)
{
	if (is_former(p))
		return REASON_UNSNATED;
	return !cfg.in_sync && announces_other6(skb, p) ? REASON_GARP_GUARD : REASON_NEIGHBOUR_OUT;
}

/* Decides IP from the node's MAC address that no guard has stopped. */
static __noinline int may_leave(struct __sk_buff *skb, const struct packet *p, int parsed)
{
	int ours = parsed && is_node(&p->src) && !is_mapped(p, &p->src);

	if (is_former(p))
		return REASON_UNSNATED;
	if (cfg.local && cfg.mtu && l3_len(skb) > cfg.mtu)
		return REASON_OVERSIZED;

	if (!ours)
		return REASON_OUT;
	if (cfg.local && has_ports(p->proto))
		return REASON_LOCAL_OUT;
	return learn(skb, p);
}

/* Reports whether the packet is a Service's reply to a packet that the host forwarded. */
static __always_inline int is_from_service(const struct packet *p)
{
	return p->v6 ? in_prefixes6(&p->src, cfg.svc6, cfg.svc6_count)
		     : in_prefixes4(p->src.w[3], cfg.svc4, cfg.svc4_count);
}

/*
 * Decides packets that are dropped or returned regardless of their MAC address. Returns -1 for
 * other packets.
 */
static __noinline int by_addresses(const struct packet *p, int parsed)
{
	__u32 kind = is_mapped(p, &p->dst) ? ADDR_OTHER : kind_of(&p->dst);

	/* the message would reduce the path MTU of a tunnel */
	if (kind == ADDR_PEER && parsed && is_too_big(p))
		return REASON_PMTUD;
	return kind == ADDR_HOST || is_from_service(p) ? REASON_HAIRPIN : -1;
}

/*
 * Decides IP from OVN. trusted: it has the node's MAC address. Rules about addresses apply to
 * malformed packets, too, because parse() still sets the addresses if the fixed header is complete.
 */
static __noinline int ip_from_ovn(struct __sk_buff *skb, int trusted)
{
	int is4 = skb->protocol == bpf_htons(ETH_P_IP), parsed, reason;
	struct packet p = {};

	parsed = !parse(skb, ETH_HLEN, &p, skb->protocol);
	reason = parsed ? tunnel_from_ovn(&p) : -1;
	if (reason >= 0)
		return reason;

	reason = by_addresses(&p, parsed);
	if (reason >= 0)
		return reason;

	if (!trusted)
		return REASON_BAD_MAC;
	if (parsed && is_bfd(&p))
		return REASON_BFD_OUT;
	if (parsed && is_nd(&p))
		return nd_may_leave(skb, &p);

	/* a leak is dropped regardless of other faults */
	reason = is4 ? guard4(p.src.w[3], p.dst.w[3]) : guard6(&p.src, &p.dst);
	return reason == REASON_OUT ? may_leave(skb, &p, parsed) : reason;
}

/* Full path for all packets from OVN. Not static: see parse(). */
__noinline int from_ovn(struct __sk_buff *skb)
{
	__u32 proto = skb->protocol;
	__u64 source = 0;
	int trusted;

	if (bpf_skb_load_bytes(skb, ETH_ALEN, &source, ETH_ALEN))
		return REASON_BAD_MAC;
	trusted = source == cfg.node_mac;
	if (skb->vlan_present && !has_our_tag(skb))
		return trusted ? REASON_OUT : REASON_BAD_MAC;

	if (proto == bpf_htons(ETH_P_IP) || proto == bpf_htons(ETH_P_IPV6))
		return ip_from_ovn(skb, trusted);
	if (proto != bpf_htons(ETH_P_ARP))
		return trusted ? REASON_OUT : REASON_BAD_MAC;

	if (encap_arp(skb))
		return REASON_ENCAP_OUT;
	if (!trusted)
		return REASON_BAD_MAC;
	return arp_may_leave(skb);
}

/* Reports whether the host's packet is for OVN: to a Service, or to a masquerade network. */
static __always_inline int is_hairpin_prefix(const struct packet *p)
{
	if (p->v6)
		return in_prefixes6(&p->dst, cfg.svc6, cfg.svc6_count) ||
		       in_prefixes6(&p->dst, cfg.masq6, cfg.masq6_count);
	return in_prefixes4(p->dst.w[3], cfg.svc4, cfg.svc4_count) ||
	       in_prefixes4(p->dst.w[3], cfg.masq4, cfg.masq4_count);
}

/*
 * Full path for packets that the host sends through the bridge. If the host tags a packet, it is
 * for another network.
 */
__noinline int from_host(struct __sk_buff *skb)
{
	struct packet p = {};
	int parsed;

	if (skb->vlan_present ||
	    (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6)))
		return REASON_HOST_OUT;
	parsed = !parse(skb, ETH_HLEN, &p, skb->protocol);
	if (parsed && is_geneve(&p))
		return REASON_HOST_OUT;
	return is_hairpin_prefix(&p) ? REASON_HOST_OVN : REASON_HOST_OUT;
}

#endif /* __OUT_H */
