// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * The programs of the gateway, which demultiplex packets: the host and OVN's gateway router share
 * one NIC and one address. Most programs find the reason of a packet (quick.h, verdict.h, out.h),
 * and pass it to the function of their layout in act.h, which counts the packet and executes the
 * verdict. Programs for shortcuts, and for packets that another program has decided already, need
 * no reason.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "maps.h"
#include "parse.h"
#include "count.h"
#include "verdict.h"
#include "out.h"
#include "quick.h"
#include "past.h"
#include "act.h"

char _license[] SEC("license") = "GPL";

/*
 * bpf2go makes Go types of these enums from the object's type information. Clang leaves out the
 * enums that no variable uses: the maps have the enums' values as __u8.
 */
const enum addr_kind *unused_kind __attribute__((unused));
const enum service_owner *unused_owner __attribute__((unused));
const enum frag_owner *unused_fragment __attribute__((unused));
const enum network *unused_network __attribute__((unused));
const enum origin *unused_origin __attribute__((unused));

/* Decides packets from the wire, by the short path if it can. may_be_tagged: see quick.h. */
static __always_inline __u32 wire_reason(struct __sk_buff *skb, int may_be_tagged)
{
	int reason = quick_from_wire(skb, may_be_tagged);

	if (reason != UNSURE)
		return reason;

	reason = bounded_reason(from_wire(skb));
	/* here and not in act.h, because the short path never returns these reasons */
	if (reason == REASON_SERVICE_HOST || reason == REASON_SERVICE_LOCAL)
		count_service(skb);
	return reason;
}

static __always_inline __u32 ovn_reason(struct __sk_buff *skb)
{
	int reason = quick_from_ovn(skb);

	return reason != UNSURE ? reason : bounded_reason(from_ovn(skb));
}

static __always_inline __u32 host_reason(struct __sk_buff *skb)
{
	int reason = quick_from_host(skb);

	return reason != UNSURE ? reason : bounded_reason(from_host(skb));
}

/*
 * Layout direct: the host owns the uplink, and OVN's packets arrive through the bridge. The gateway
 * network has no VLAN tag here (Go refuses the setting), so may_be_tagged is 0.
 */

SEC("tc")
int uplink_ingress(struct __sk_buff *skb)
{
	return direct_wire(skb, wire_reason(skb, 0));
}

SEC("tc")
int bridge_ingress(struct __sk_buff *skb)
{
	return direct_ovn(skb, ovn_reason(skb));
}

/* Layout bridged: OVS owns the uplink, and the host's address is on the bridge. */

SEC("tc")
int bridged_uplink_in(struct __sk_buff *skb)
{
	return bridged_wire(skb, wire_reason(skb, 1));
}

/*
 * Three kinds of packets leave by the uplink: packets that a program has decided, counted and sent
 * past OVS (of the host, or of a pod with a shortcut); packets of the host that the bridge's flows
 * forward while no program is attached to the bridge's egress; and packets of OVN.
 */
SEC("tc")
int bridged_uplink_out(struct __sk_buff *skb)
{
	if (was_sent_past(skb))
		return TC_ACT_UNSPEC;
	if (skb->mark == MARK_HOST)
		return bridged_flows(skb);
	return bridged_ovn(skb, ovn_reason(skb));
}

/* From the bridge to the host. bridged_uplink_in has decided and counted these packets. */
SEC("tc")
int bridged_bridge_in(struct __sk_buff *skb)
{
	return bridged_flood(skb);
}

/* From the host to the bridge. */
SEC("tc")
int bridged_bridge_out(struct __sk_buff *skb)
{
	return bridged_host(skb, host_reason(skb));
}

/* Layout dedicated: only OVN uses the uplink. */

SEC("tc")
int dedicated_uplink_in(struct __sk_buff *skb)
{
	return dedicated_wire(skb, wire_reason(skb, 1));
}

SEC("tc")
int dedicated_uplink_out(struct __sk_buff *skb)
{
	return dedicated_ovn(skb, ovn_reason(skb));
}

/*
 * Shortcuts: at the host's end of each pod's device. In layout direct, no program is at the
 * uplink's egress, so the packets need no mark: see from_pod() in past.h.
 */

SEC("tc")
int pod_direct(struct __sk_buff *skb)
{
	return from_pod(skb, 0);
}

SEC("tc")
int pod_bridged(struct __sk_buff *skb)
{
	return from_pod(skb, MARK_POD_SENT);
}
