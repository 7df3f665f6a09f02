/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Executes verdicts. Each layout has a function for each origin of packets, with both in its name.
 * It gets the reason that the rules have found, counts the packet once, and hands it over. doc.go
 * has a table of the layouts. To pass a packet on is to return TC_ACT_UNSPEC, which is also
 * TCX_NEXT: later programs on the hook still run.
 */
#ifndef __ACT_H
#define __ACT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "hash.h"
#include "lookup.h"
#include "maps.h"
#include "past.h"
#include "verdict.h"

/*
 * Sends a packet for OVN past OVS to its pod, and counts it, if it has a valid shortcut. Otherwise
 * returns 0.
 */
static __always_inline int go_short(struct __sk_buff *skb, __u32 reason)
{
	__u32 device;

	if ((reason != REASON_SNAT_PORT && reason != REASON_SERVICE) || !shortcuts_on ||
	    !connected())
		return 0;
	device = shortcut_in(skb, reason);
	return device ? bpf_redirect_peer(device, 0) : 0;
}

/* Counts a packet from the wire. Returns its final reason, which decides what happens to it. */
static __always_inline __u32 count_wire(struct __sk_buff *skb, __u32 reason)
{
	reason = final_wire_reason(reason);
	count(skb, reason);
	return reason;
}

/* The same for a packet from OVN. */
static __always_inline __u32 count_ovn(struct __sk_buff *skb, __u32 reason)
{
	reason = final_ovn_reason(reason);
	count(skb, reason);
	return reason;
}

/* At the uplink's ingress: the host's stack is behind this hook, and OVN behind the bridge. */
static __always_inline int direct_wire(struct __sk_buff *skb, __u32 reason)
{
	int action = go_short(skb, reason);

	if (action)
		return action;

	reason = count_wire(skb, reason);
	if (reason == REASON_SERVICE_HOST)
		assign_socket(skb);
	if (wire_to_host(reason))
		return TC_ACT_UNSPEC;

	if (reason == REASON_SERVICE)
		count_service(skb);
	if (wire_to_ovn(reason)) {
		ensure_hash(skb);
		return bpf_redirect(cfg.bridge, 0);
	}

	if (wire_dropped(reason))
		return TC_ACT_SHOT;
	/* for both: a copy to OVN, and the packet itself to the host */
	bpf_clone_redirect(skb, cfg.bridge, 0);
	return TC_ACT_UNSPEC;
}

/* At the bridge's ingress: the host's stack is behind this hook, and the wire behind the uplink. */
static __always_inline int direct_ovn(struct __sk_buff *skb, __u32 reason)
{
	reason = count_ovn(skb, reason);
	if (shortcuts_on && skb->tc_index)
		leaves_ovs(skb, reason);

	if (ovn_out(reason))
		return bpf_redirect(cfg.uplink, 0);
	if (ovn_dropped(reason))
		return TC_ACT_SHOT;

	/* the destination MAC address is the next router's */
	bpf_skb_change_type(skb, PACKET_HOST);
	return TC_ACT_UNSPEC;
}

/* Sends the packet up to the host, without the tag: from its view its network is untagged. */
static __always_inline int up(struct __sk_buff *skb, int tagged)
{
	if (tagged)
		bpf_skb_vlan_pop(skb);
	return bpf_redirect(cfg.bridge, BPF_F_INGRESS);
}

/* Copies the packet to the host, without the tag. OVS still gets the packet with the tag. */
static __always_inline void copy_up(struct __sk_buff *skb)
{
	__u16 tci = skb->vlan_tci; /* with its priority */

	if (cfg.vlan)
		bpf_skb_vlan_pop(skb);
	bpf_clone_redirect(skb, cfg.bridge, BPF_F_INGRESS);
	if (cfg.vlan)
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), tci);
}

/*
 * At the uplink's ingress: OVS is behind this hook. Its flows send packets with MARK_OVN to OVN.
 * While not connected, the flows decide every packet, and carry the host's traffic.
 */
static __always_inline int bridged_wire(struct __sk_buff *skb, __u32 reason)
{
	int action = go_short(skb, reason);

	if (action)
		return action;

	reason = count_wire(skb, reason);
	/* a peer on this machine, behind a veth, may have left its own value */
	skb->tc_index = 0;

	if (wire_dropped(reason))
		return TC_ACT_SHOT;
	if (!connected())
		return TC_ACT_UNSPEC;

	if (reason == REASON_SERVICE_HOST)
		assign_socket(skb);
	if (wire_to_host(reason))
		return up(skb, cfg.vlan && reason != REASON_VLAN);

	if (reason == REASON_SERVICE)
		count_service(skb);
	if (wire_to_both(reason))
		copy_up(skb);
	else
		ensure_hash(skb);
	skb->mark = MARK_OVN;
	return TC_ACT_UNSPEC;
}

/* Drops OVN's packets that a bridge without flows floods to the host, which would refuse them. */
static __always_inline int bridged_flood(struct __sk_buff *skb)
{
	return skb->mark == MARK_OVN ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* At the uplink's egress: OVS has sent the packet, and the wire is behind this hook. */
static __always_inline int bridged_ovn(struct __sk_buff *skb, __u32 reason)
{
	reason = count_ovn(skb, reason);
	if (shortcuts_on && skb->tc_index)
		leaves_ovs(skb, reason);

	if (ovn_out(reason) || !connected())
		return TC_ACT_UNSPEC;
	if (ovn_dropped(reason))
		return TC_ACT_SHOT;

	/* the destination MAC address is the next router's */
	bpf_skb_store_bytes(skb, 0, &cfg.node_mac, ETH_ALEN, 0);
	return up(skb, has_our_tag(skb));
}

/* At the bridge's egress: OVS is behind this hook. Packets for the wire go past it. */
static __always_inline int bridged_host(struct __sk_buff *skb, __u32 reason)
{
	count(skb, reason);
	if (reason == REASON_HOST_OVN)
		skb->mark = MARK_OVN;
	if (reason == REASON_HOST_OVN || !connected())
		return TC_ACT_UNSPEC;

	if (cfg.vlan && !skb->vlan_present)
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), cfg.vlan);

	/* read by the monitor, and during an upgrade by an uplink program that checks only this */
	skb->tc_index = TC_HOST;
	return send_past(skb, MARK_HOST_SENT);
}

/* Counts a packet that is left to the bridge's flows, because no program is attached there. */
static __always_inline int bridged_flows(struct __sk_buff *skb)
{
	count(skb, REASON_HOST_OUT);
	return TC_ACT_UNSPEC;
}

/* At the uplink's ingress: OVS is behind this hook, and gets every packet that is not dropped. */
static __always_inline int dedicated_wire(struct __sk_buff *skb, __u32 reason)
{
	reason = count_wire(skb, reason);
	if (wire_dropped(reason))
		return TC_ACT_SHOT;
	if (reason == REASON_SERVICE)
		count_service(skb);
	ensure_hash(skb);
	return TC_ACT_UNSPEC;
}

/* At the uplink's egress. Packets for the host leave, too: its addresses are at another NIC. */
static __always_inline int dedicated_ovn(struct __sk_buff *skb, __u32 reason)
{
	reason = count_ovn(skb, reason);
	if (ovn_out(reason) || ovn_to_host(reason) || !connected())
		return TC_ACT_UNSPEC;
	return TC_ACT_SHOT;
}

#endif /* __ACT_H */
