/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* ARP and neighbour discovery: which side may answer, and which side must receive. */
#ifndef __NEIGH_H
#define __NEIGH_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "prefix.h"

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

#define ND_SOLICITED 0x40 /* RFC 4861, 4.4 */
#define ARP_OP_REQUEST 1
#define ARP_OP_REPLY 2

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

		switch (kind_of(&target)) {
		case ADDR_VIP:
			return REASON_ND_VIP;
		case ADDR_HOST:
			return REASON_ND_SOLICIT;
		case ADDR_OVN:
			return REASON_ND_SOLICIT_OVN;
		}
		return REASON_ND_OTHER;
	}

	return REASON_ND_OTHER;
}

static __always_inline int is_nd(const struct packet *p)
{
	return p->v6 && is_icmp(p) && p->frag == FRAG_NONE && p->icmp_type >= ND_ROUTER_SOLICIT &&
	       p->icmp_type <= ND_REDIRECT;
}

/* Reports whether an advertisement claims an internal address. */
static __always_inline int claims_internal(struct __sk_buff *skb, const struct packet *p)
{
	struct addr target;

	return is_nd(p) && p->icmp_type == ND_NEIGHBOR_ADVERT &&
	       !bpf_skb_load_bytes(skb, p->l4 + 8, &target, sizeof(target)) &&
	       is_internal(1, &target);
}

/* foreign: of another network, although untagged. */
static __noinline int arp(struct __sk_buff *skb, int foreign)
{
	struct arp_packet a;
	struct addr sender, target;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &a, sizeof(a)))
		return foreign ? REASON_VLAN : REASON_MALFORMED;

	map4(&sender, a.spa);
	if (is_internal(0, &sender))
		return REASON_SPOOFED_SOURCE;
	if (foreign)
		return REASON_VLAN;

	if (a.op == bpf_htons(ARP_OP_REPLY))
		return REASON_ARP_REPLY;
	if (a.op != bpf_htons(ARP_OP_REQUEST))
		return REASON_ARP_OTHER;

	map4(&target, a.tpa);
	switch (kind_of(&target)) {
	case ADDR_VIP:
		return REASON_ARP_VIP;
	case ADDR_HOST:
		return REASON_ARP_REQUEST;
	case ADDR_OVN:
		return REASON_ARP_REQUEST_OVN;
	}

	return a.spa == a.tpa ? REASON_ARP_GRATUITOUS : REASON_ARP_OTHER;
}

/* Reports whether it is an unsolicited ARP announcement of an address that is not this node's. */
static __always_inline int announces_other4(struct __sk_buff *skb)
{
	struct arp_packet a;
	struct addr target;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &a, sizeof(a)) || a.spa != a.tpa)
		return 0;
	if (a.op != bpf_htons(ARP_OP_REQUEST) && a.op != bpf_htons(ARP_OP_REPLY))
		return 0;
	map4(&target, a.tpa);
	return !is_host(&target);
}

/* The same for neighbour discovery. A solicited advertisement is a reply. */
static __always_inline int announces_other6(struct __sk_buff *skb, const struct packet *p)
{
	struct {
		__u8 flags;
		__u8 reserved[3];
		struct addr target;
	} h;

	if (p->icmp_type != ND_NEIGHBOR_ADVERT ||
	    bpf_skb_load_bytes(skb, p->l4 + 4, &h, sizeof(h)) || h.flags & ND_SOLICITED)
		return 0;
	return !is_host(&h.target) && !addr_eq(&h.target, &cfg.gr_lla);
}

#endif /* __NEIGH_H */
