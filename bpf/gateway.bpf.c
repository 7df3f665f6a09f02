// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * The gateway demultiplexer. One NIC, one address, two owners: the host and
 * OVN's gateway router. Each program goes packet -> reason -> act(), and act()
 * is the only way out.
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

char _license[] SEC("license") = "GPL";

/* For bpf2go: an enum that no map mentions is not in the type information. */
const enum reason *unused_reason __attribute__((unused));

static __always_inline int act(struct __sk_buff *skb, __u32 reason)
{
	if (reason >= REASON_OVN_FIRST && (!cfg.uplink || !cfg.bridge))
		reason = reason < REASON_OUT_FIRST ? REASON_PASS_UNCONFIGURED : REASON_NO_UPLINK;
	count(skb, reason);
	if (reason < REASON_OVN_FIRST)
		return TC_ACT_UNSPEC; /* TCX_NEXT: others on the hook still run */
	if (reason < REASON_BOTH_FIRST)
		return bpf_redirect(cfg.bridge, 0);
	if (reason < REASON_OUT_FIRST) {
		bpf_clone_redirect(skb, cfg.bridge, 0);
		return TC_ACT_UNSPEC;
	}
	if (reason < REASON_DROP_FIRST)
		return bpf_redirect(cfg.uplink, 0);
	return TC_ACT_SHOT;
}

/*
 * What a global function returns is any number to the verifier. That of 6.1
 * loses the bound in a 32-bit copy, so clang must not keep one from before.
 */
static __always_inline __u32 bounded_reason(__u64 reason)
{
	asm volatile("" : "+r"(reason));
	if (reason >= REASON_MAX)
		reason = REASON_DEFAULT;
	asm volatile("" : "+r"(reason));
	return reason;
}

SEC("tc")
int uplink_ingress(struct __sk_buff *skb)
{
	int reason = quick_from_wire(skb);

	if (reason != UNSURE)
		return act(skb, reason);
	return act(skb, bounded_reason(from_wire(skb)));
}

SEC("tc")
int bridge_ingress(struct __sk_buff *skb)
{
	int reason = quick_from_ovn(skb);

	if (reason != UNSURE)
		return act(skb, reason);
	return act(skb, bounded_reason(from_ovn(skb)));
}
