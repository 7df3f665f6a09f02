// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/* lookup.h by itself: the table's definition for Go, and a program with which the tests check that
 * the assigned socket survives each path to the host. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "parse.h"
#include "lookup.h"

char _license[] SEC("license") = "GPL";

const volatile __u32 host_device = 0; /* the packet continues at this device's ingress, if not 0 */

SEC("tc")
int lookup_ingress(struct __sk_buff *skb)
{
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return TC_ACT_UNSPEC;
	assign_socket(skb);
	if (host_device)
		return bpf_redirect(host_device, BPF_F_INGRESS);
	return TC_ACT_UNSPEC;
}
