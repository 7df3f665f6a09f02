// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * The gateway demultiplexer. One NIC and one address have two owners: the host and OVN's gateway
 * router. Each program maps packet -> reason -> act(), and act() is the only exit.
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

/* For bpf2go: the type information lacks enums that no map uses. */
const enum addr_kind *unused_kind __attribute__((unused));
const enum service_owner *unused_owner __attribute__((unused));
const enum frag_owner *unused_fragment __attribute__((unused));
const enum network *unused_network __attribute__((unused));
const enum origin *unused_origin __attribute__((unused));

static __always_inline __u32 wire_reason(struct __sk_buff *skb, int tags)
{
	int reason = quick_from_wire(skb, tags);

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

/* direct: the host owns the uplink, OVN's packets arrive through the bridge */

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

/* bridged: OVS owns the uplink, the host's address is on the bridge */

SEC("tc")
int bridged_uplink_in(struct __sk_buff *skb)
{
	return bridged_wire(skb, wire_reason(skb, 1));
}

SEC("tc")
int bridged_uplink_out(struct __sk_buff *skb)
{
	if (was_sent_past(skb))
		return TC_ACT_UNSPEC;
	if (skb->mark == MARK_HOST)
		return bridged_flows(skb);
	return bridged_ovn(skb, ovn_reason(skb));
}

SEC("tc")
int bridged_bridge_in(struct __sk_buff *skb)
{
	return bridged_flood(skb);
}

SEC("tc")
int bridged_bridge_out(struct __sk_buff *skb)
{
	return bridged_host(skb, host_reason(skb));
}

/* dedicated: only OVN uses the uplink */

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

/* shortcuts: at the host's end of each pod's device; see past.h */

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
