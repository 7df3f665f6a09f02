/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * ARP and neighbour discovery. For packets from the wire: which side receives them, and so which
 * side may answer. For packets from OVN: which of them announce an address.
 */
#ifndef __NEIGH_H
#define __NEIGH_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "prefix.h"

/* ARP for IPv4 over Ethernet, after the Ethernet header (RFC 826). */
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

/*
 * Solicitations and advertisements have this format (RFC 4861, 4.3 and 4.4): four bytes of ICMP
 * header, another four bytes, and the target. The first of the other bytes has the flags of an
 * advertisement.
 */
#define ND_FLAGS_OFFSET 4
#define ND_TARGET_OFFSET 8
#define ND_SOLICITED 0x40 /* flag: the advertisement is an answer */

#define ARP_OP_REQUEST 1
#define ARP_OP_REPLY 2

/* Decides neighbour discovery from the wire: see is_nd(). */
static __always_inline int nd_reason(struct __sk_buff *skb, const struct packet *p)
{
	struct addr target;

	switch (p->icmp_type) {
	case ND_NEIGHBOR_ADVERT:
		return REASON_ND_ADVERT;
	case ND_ROUTER_ADVERT:
		return REASON_ROUTER_ADVERT;
	case ND_NEIGHBOR_SOLICIT:
		if (bpf_skb_load_bytes(skb, p->l4 + ND_TARGET_OFFSET, &target, sizeof(target)))
			return REASON_MALFORMED;

		switch (kind_of(&target)) {
		case ADDR_VIP:
			return REASON_ND_VIP;
		case ADDR_HOST:
			return REASON_ND_SOLICIT;
		case ADDR_OVN:
			return REASON_ND_SOLICIT_OVN;
		}
	}

	return REASON_ND_OTHER;
}

/* Reports whether the packet is neighbour discovery, which must not be fragmented (RFC 6980). */
static __always_inline int is_nd(const struct packet *p)
{
	return p->v6 && is_icmp(p) && p->frag == FRAG_NONE && p->icmp_type >= ND_ROUTER_SOLICIT &&
	       p->icmp_type <= ND_REDIRECT;
}

/*
 * Reports whether the packet is a neighbour advertisement for an internal address. An advertisement
 * claims its target, and not its source address, which the caller checks for all packets.
 */
static __always_inline int claims_internal(struct __sk_buff *skb, const struct packet *p)
{
	struct addr target;

	return is_nd(p) && p->icmp_type == ND_NEIGHBOR_ADVERT &&
	       !bpf_skb_load_bytes(skb, p->l4 + ND_TARGET_OFFSET, &target, sizeof(target)) &&
	       is_internal(1, &target);
}

/*
 * Decides ARP from the wire. foreign: the frame is of another network. It has no tag, but the
 * gateway network has one. The host's stack accepts such a frame, so a spoofed sender is dropped
 * even there, before all other rules. The target's kind precedes the test for gratuitous ARP, so an
 * announcement of a local address goes where a request for this address goes.
 */
static __noinline int arp_reason(struct __sk_buff *skb, int foreign)
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

	/* gratuitous ARP announces the sender's address: the sender asks for itself (RFC 5227) */
	return a.spa == a.tpa ? REASON_ARP_GRATUITOUS : REASON_ARP_OTHER;
}

/*
 * Reports whether OVN's packet is gratuitous ARP, as request or reply, for an address that is not
 * the host's. OVN's gateway router shares an address with the host, and may always announce it.
 */
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

/*
 * Reports whether OVN's packet, which is_nd(), is an unsolicited advertisement for an address that
 * is neither the host's nor the link-local address of the node's gateway router. A solicited
 * advertisement is a reply.
 */
static __always_inline int announces_other6(struct __sk_buff *skb, const struct packet *p)
{
	struct {
		__u8 flags;
		__u8 reserved[3];
		struct addr target;
	} h;

	if (p->icmp_type != ND_NEIGHBOR_ADVERT ||
	    bpf_skb_load_bytes(skb, p->l4 + ND_FLAGS_OFFSET, &h, sizeof(h)) ||
	    h.flags & ND_SOLICITED)
		return 0;
	return !is_host(&h.target) && !addr_eq(&h.target, &cfg.gr_lla);
}

#endif /* __NEIGH_H */
