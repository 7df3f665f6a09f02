// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * A dry run: applies the gateway's rules to a given packet, over the tables of the attached
 * programs. It does not count, learn or send. It records lookups and results in its own map.
 */
#define EXPLAIN
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "maps.h"
#include "verdict.h"
#include "out.h"
#include "quick.h"

char _license[] SEC("license") = "GPL";

const enum reason *unused_reason __attribute__((unused));
const enum asked *unused_asked __attribute__((unused));

/*
 * A test run cannot set the fields that reception sets when it removes a tag. So cb[0] is the tag's
 * protocol in network order, 0 for none, and cb[1] its TCI.
 */
static __always_inline struct dry_run *begin(struct __sk_buff *skb)
{
	struct dry_run *e;
	__u32 zero = 0;

	if (skb->cb[0])
		bpf_skb_vlan_push(skb, skb->cb[0], skb->cb[1]);
	e = bpf_map_lookup_elem(&explanation, &zero);
	if (e)
		e->count = e->silent = 0;
	return e;
}

/* Records the full path. The short path must have the same result. */

SEC("tc")
int explain_wire(struct __sk_buff *skb)
{
	struct dry_run *e = begin(skb);
	int quick;

	if (!e)
		return TC_ACT_SHOT;

	e->reason = final_wire_reason(bounded_reason(from_wire(skb)));
	e->silent = 1;
	quick = quick_from_wire(skb, 1);
	e->quick = quick == UNSURE ? REASON_MAX : final_wire_reason(quick);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int explain_ovn(struct __sk_buff *skb)
{
	struct dry_run *e = begin(skb);
	int quick;

	if (!e)
		return TC_ACT_SHOT;

	e->reason = final_ovn_reason(bounded_reason(from_ovn(skb)));
	e->silent = 1;
	quick = quick_from_ovn(skb);
	e->quick = quick == UNSURE ? REASON_MAX : final_ovn_reason(quick);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int explain_host(struct __sk_buff *skb)
{
	struct dry_run *e = begin(skb);
	int quick;

	if (!e)
		return TC_ACT_SHOT;

	e->reason = bounded_reason(from_host(skb));
	e->silent = 1;
	quick = quick_from_host(skb);
	e->quick = quick == UNSURE ? REASON_MAX : quick;
	return TC_ACT_UNSPEC;
}
