/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Decides packets from the wire. Each function returns a reason, in the order of docs/verdicts.md.
 * They change only priority tags, the map frags and ages in takeover. act.h counts and acts.
 */
#ifndef __VERDICT_H
#define __VERDICT_H

#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <bpf/bpf_helpers.h>

#include "fragment.h"
#include "icmp.h"
#include "maps.h"
#include "neigh.h"
#include "parse.h"
#include "port.h"
#include "prefix.h"
#include "state.h"

#define VLAN_VID_MASK 0xfff

/*
 * To the verifier, a global function may return any number. The verifier of Linux 6.1 loses the
 * bound in a 32-bit copy, so clang must not keep an earlier copy.
 */
static __always_inline __u32 bounded_reason(__u64 reason)
{
	asm volatile("" : "+r"(reason));
	if (reason >= REASON_MAX)
		reason = REASON_DEFAULT;
	asm volatile("" : "+r"(reason));
	return reason;
}

/* Decides IP packets to this node by their protocol, and by port or exchange. */
static __always_inline int owner_reason(struct __sk_buff *skb, const struct packet *p)
{
	if (has_ports(p->proto))
		return port_owner(skb, p, 0);
	if (is_icmp(p))
		return icmp_owner(skb, p);

	if (is_host_proto(p))
		return REASON_PROTO_HOST;
	if (is_node(&p->dst))
		return in_ns(p) ? REASON_PROTO_NS : REASON_DEFAULT;
	return is_host(&p->dst) ? REASON_DEFAULT : REASON_NOT_OURS;
}

/* Decides Geneve by its destination. Returns -1 if this is no tunnel address of the node. */
static __always_inline int geneve_reason(const struct packet *p)
{
	if (cfg.has_encap && addr_eq(&p->dst, &cfg.encap))
		return REASON_GENEVE_OVN;
	return is_host(&p->dst) ? REASON_GENEVE : -1;
}

/* Decides IP packets if their owner does not depend on ports. Otherwise it returns -1. */
static __always_inline int by_address(struct __sk_buff *skb, const struct packet *p)
{
	__u32 kind;

	if (is_geneve(p)) {
		int reason = geneve_reason(p);

		if (reason >= 0)
			return reason;
	}
	if (skb->pkt_type != PACKET_HOST)
		return REASON_MULTICAST;
	kind = kind_of(&p->dst);
	if (kind != ADDR_HOST && is_routable(p->v6, &p->dst))
		return REASON_POD_ADDRESS;
	return kind == ADDR_OVN ? REASON_OVN_ADDRESS : -1;
}

/* Reports whether a packet to an internal address reaches a listener there. */
static __always_inline int is_served(const struct addr *dst, int reason)
{
	if (!connected())
		return 0;

	switch (reason) {
	case REASON_SERVICE:
	case REASON_SERVICE_HOST:
	case REASON_SERVICE_LOCAL:
	case REASON_POD_ADDRESS:
	case REASON_OVN_ADDRESS:
	case REASON_GENEVE_OVN:
	case REASON_FRAGMENT:
	case REASON_FRAGMENT_OVN:
	case REASON_ICMP_VIP:
	case REASON_ND_VIP:
	case REASON_ND_SOLICIT:
	case REASON_ND_SOLICIT_OVN:
		return 1;
	case REASON_ICMP_ERROR_OVN:
	case REASON_ICMP_ERROR_ECHO:
	case REASON_ICMP_ERROR_HOST:
		return kind_of(dst) == ADDR_VIP;
	}

	return 0;
}

/*
 * Reports whether the host would forward the packet to an internal address if these rules left it
 * to the host. Not static: see parse().
 */
__noinline int goes_inward(const struct packet *p, int reason)
{
	struct addr dst; /* see is_internal() */

	if (!p)
		return 0;
	dst = p->dst;
	return is_internal(p->v6, &dst) && !is_host(&dst) && !is_served(&dst, reason);
}

/* Decides well-formed IP packets of the gateway's network that are not spoofed. */
static __always_inline int admitted(struct __sk_buff *skb, const struct packet *p)
{
	int reason;

	if (is_nd(p))
		return nd_reason(skb, p);
	reason = by_address(skb, p);
	if (reason >= 0)
		return reason;
	return p->frag == FRAG_LATER ? later_fragment(p) : owner_reason(skb, p);
}

/*
 * Decides IP from the wire. foreign: see arp_reason() in neigh.h. The order of the checks matters:
 * a spoofed source is dropped first, and an internal destination last, because only the reason
 * shows whether the packet has a listener there.
 */
static __noinline int ip_reason(struct __sk_buff *skb, int foreign)
{
	struct packet p = {};
	int bad, reason = REASON_MALFORMED;

	bad = parse(skb, ETH_HLEN, &p, skb->protocol);
	if (is_internal(p.v6, &p.src) || (!bad && claims_internal(skb, &p)))
		return REASON_SPOOFED_SOURCE;

	bad = bad || foreign || is_mapped(&p, &p.dst);
	if (!bad)
		reason = admitted(skb, &p);
	else if (foreign)
		reason = REASON_VLAN;

	if (goes_inward(&p, reason))
		reason = REASON_CLUSTER_DESTINATION;
	return p.frag == FRAG_FIRST && !bad ? first_fragment(&p, reason) : reason;
}

/* Reports whether the packet has the gateway VLAN's tag and no second tag. */
static __always_inline int has_our_tag(struct __sk_buff *skb)
{
	return skb->vlan_present && cfg.vlan && (skb->vlan_tci & VLAN_VID_MASK) == cfg.vlan &&
	       skb->vlan_proto == bpf_htons(ETH_P_8021Q) &&
	       skb->protocol != bpf_htons(ETH_P_8021Q) && skb->protocol != bpf_htons(ETH_P_8021AD);
}

/*
 * Reports whether the packet may be of another network, by its tag, for the short path. A priority
 * tag counts, too: from_wire() decides whether the packet is.
 */
static __always_inline int is_foreign(struct __sk_buff *skb)
{
	if (!cfg.vlan)
		return skb->vlan_present;
	return !has_our_tag(skb);
}

static __always_inline int is_tag(__be32 proto)
{
	return proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD);
}

/* The kernel ignores a tag with VLAN 0, 802.1Q and 802.1ad alike. */
static __always_inline int has_priority_tag(struct __sk_buff *skb)
{
	return skb->vlan_present && !(skb->vlan_tci & VLAN_VID_MASK);
}

/*
 * Full path: decides any packet that arrives at the uplink. It removes a priority tag, which OVS
 * would treat as a VLAN. Not static: see parse().
 */
__noinline int from_wire(struct __sk_buff *skb)
{
	int priority = has_priority_tag(skb), untagged = priority || !skb->vlan_present;
	int foreign = untagged ? !!cfg.vlan : !has_our_tag(skb);

	/* the kernel would also parse the packet behind the second tag */
	if (priority && is_tag(skb->protocol))
		return REASON_NESTED_TAG;
	/* another network may use the same addresses */
	if (foreign && (!untagged || skb->pkt_type > PACKET_MULTICAST))
		return REASON_VLAN;

	if (priority && !DRY_RUN)
		bpf_skb_vlan_pop(skb);

	if (skb->pkt_type > PACKET_MULTICAST)
		return REASON_OTHER_MAC;
	if (skb->protocol == bpf_htons(ETH_P_ARP))
		return arp_reason(skb, foreign);
	if (skb->protocol == bpf_htons(ETH_P_IP) || skb->protocol == bpf_htons(ETH_P_IPV6))
		return ip_reason(skb, foreign);
	return foreign ? REASON_VLAN : REASON_NOT_IP;
}

#endif /* __VERDICT_H */
