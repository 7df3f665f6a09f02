// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * Nested pods of a virtual machine (VM). The NIC is a port of a hypervisor's OVN. Each pod is a
 * nested port: its packets have the port's VLAN tag on the NIC. A packet between a pod and its own
 * VM stays in the VM, so OVN's port security does not see it. Each program maps packet -> reason,
 * and has one helper as its only exit.
 *
 * The maps carry IPv6, but the programs know only the VM's IPv4 addresses: a pod's IPv6 packets all
 * go to the wire.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "nested.h"
#include "parse.h"
#include "segment.h"

char _license[] SEC("license") = "GPL";

/* For bpf2go: the type information lacks enums that no map uses. */
const enum nested_reason *unused_reason __attribute__((unused));
const enum vlan_flag *unused_vlan_flag __attribute__((unused));
const enum device_flag *unused_device_flag __attribute__((unused));

const volatile __u32 nic; /* its interface index */

/* Returns the length of the headers that each segment of a GSO packet has on the wire. */
static __noinline int header_len(struct __sk_buff *skb)
{
	struct packet p = {};

	if (parse(skb, ETH_HLEN, &p, skb->protocol))
		return 0;
	return p.l4 + l4_len(skb, &p);
}

/* Counts the packet by its reason. */
static __always_inline void count(struct __sk_buff *skb, __u32 reason)
{
	struct cell *c;

	c = bpf_map_lookup_elem(&nested_counts, &reason);
	if (!c)
		return;
	add_packet(skb, c);
	if (skb->gso_size)
		add_segments(skb, c, header_len(skb));
}

/* Hands a packet with the pod's tag to the pod, without the tag. */
static __always_inline int deliver(struct __sk_buff *skb, const struct vlan *vlan)
{
	__u32 ifindex = vlan->ifindex, limited = vlan->flags & VLAN_LIMITED;

	bpf_skb_vlan_pop(skb);
	if (limited)
		return bpf_redirect(ifindex, 0);
	/* the pod's stack sees the type before Linux 6.15, 6.12.29 and 6.1.139 */
	if (skb->pkt_type == PACKET_OTHERHOST)
		bpf_skb_change_type(skb, PACKET_HOST);
	return bpf_redirect_peer(ifindex, 0);
}

/* Counts a packet from the wire, and executes the decision. */
static __always_inline int wire_exit(struct __sk_buff *skb, __u32 reason, const struct vlan *vlan)
{
	count(skb, reason);
	if (reason == NESTED_IN)
		return deliver(skb, vlan);
	return reason == NESTED_NO_POD ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

static __always_inline __u32 wire_reason(const struct vlan *vlan)
{
	if (vlan->ifindex)
		return NESTED_IN;
	return vlan->flags & VLAN_POOL ? NESTED_NO_POD : NESTED_FOREIGN_VLAN;
}

/* At the NIC's ingress. The VM's own packets have no tag, and are not counted. */
SEC("tc")
int nested_from_wire(struct __sk_buff *skb)
{
	__u32 tag = skb->vlan_tci & VLAN_VID_MASK;
	struct vlan *vlan;

	if (!skb->vlan_present || skb->vlan_proto != bpf_htons(ETH_P_8021Q) || !tag)
		return TC_ACT_UNSPEC;
	vlan = bpf_map_lookup_elem(&nested_tags, &tag);
	if (!vlan)
		return TC_ACT_UNSPEC;
	return wire_exit(skb, wire_reason(vlan), vlan);
}

/* The kernel removes a tag before the hook, so the protocol can only be that of an inner tag. */
static __always_inline int is_tagged(struct __sk_buff *skb)
{
	return skb->vlan_present || skb->protocol == bpf_htons(ETH_P_8021Q) ||
	       skb->protocol == bpf_htons(ETH_P_8021AD);
}

/* Reports whether the destination is one of the VM's IPv4 addresses. */
static __always_inline int is_to_host(struct __sk_buff *skb)
{
	struct addr dst;
	__be32 ip4;

	if (skb->protocol != bpf_htons(ETH_P_IP) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN + __builtin_offsetof(struct iphdr, daddr), &ip4,
			       sizeof(ip4)))
		return 0;
	map4(&dst, ip4);
	return bpf_map_lookup_elem(&nested_host, &dst) != NULL;
}

/* Reports whether the packet has the pod's MAC address and IPv4 address. */
static __always_inline int is_own_source(struct __sk_buff *skb, const struct device *dev,
					 const struct packet *p)
{
	const __u16 *own = (const __u16 *)dev->mac;
	__u16 mac[3]; /* clang would call memcmp for bytes */

	if (!(dev->flags & DEVICE_IP4) || p->src.w[3] != dev->ip4)
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_ALEN, mac, sizeof(mac)))
		return 0;
	return mac[0] == own[0] && mac[1] == own[1] && mac[2] == own[2];
}

/*
 * Reports whether a socket of the VM may receive the packet. Otherwise the packet answers a packet
 * from the VM to a load balancer, and the load balancer must translate the answer.
 */
static __always_inline int has_socket(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	__u32 len = socket_tuple(&t, p);

	if (p->proto == IPPROTO_TCP)
		sk = bpf_skc_lookup_tcp(skb, &t, len, BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(skb, &t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;

	bpf_sk_release(sk);
	return 1;
}

/* A fragment that arrives before the first one is for the VM, which discards it in time. */
static __always_inline int later_is_for_host(const struct packet *p)
{
	struct frag_seen *seen;
	struct frag_key k;

	frag_key(&k, p);
	seen = bpf_map_lookup_elem(&nested_frags, &k);
	return !seen || seen->owner == FRAG_HOST || bpf_ktime_get_ns() - seen->ns >= FRAG_TIMEOUT;
}

/* Stores where the later fragments of the packet go. */
static __always_inline void remember(const struct packet *p, int for_host)
{
	struct frag_seen now = {
		.ns = bpf_ktime_get_ns(),
		.owner = for_host ? FRAG_HOST : FRAG_OVN,
	};
	struct frag_key k;

	frag_key(&k, p);
	bpf_map_update_elem(&nested_frags, &k, &now, BPF_ANY);
}

/*
 * Reports whether a packet to one of the VM's addresses is for the VM itself. own: the packet has
 * the addresses of the pod that sends it.
 */
static __always_inline int is_for_host(struct __sk_buff *skb, const struct packet *p, int own)
{
	int for_host;

	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
		return 1;
	if (p->frag == FRAG_LATER)
		return later_is_for_host(p);

	for_host = has_socket(skb, p);
	/* a pod must not decide about another pod's fragments */
	if (p->frag == FRAG_FIRST && own)
		remember(p, for_host);
	return for_host;
}

static __always_inline __u32 pod_reason(struct __sk_buff *skb, const struct device *dev)
{
	struct packet p = {};
	int own;

	if (is_tagged(skb))
		return NESTED_SPOOFED_VLAN;
	if (!is_to_host(skb) || parse(skb, ETH_HLEN, &p, skb->protocol))
		return NESTED_OUT; /* OVN checks it */

	own = is_own_source(skb, dev, &p);
	if (!is_for_host(skb, &p, own))
		return NESTED_OUT;
	return own ? NESTED_HOST : NESTED_SPOOFED_SOURCE;
}

/* Counts a packet from a pod, and executes the decision. tag: the pod's. */
static __always_inline int pod_exit(struct __sk_buff *skb, __u32 reason, __u16 tag)
{
	count(skb, reason);

	switch (reason) {
	case NESTED_OUT:
		bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), tag);
		return bpf_redirect(nic, 0);
	case NESTED_HOST:
		/* the destination MAC address is that of the router of the pod's network */
		bpf_skb_change_type(skb, PACKET_HOST);
		return TC_ACT_UNSPEC;
	}

	return TC_ACT_SHOT;
}

/* At the ingress of the host's end of each pod's veth. */
SEC("tc")
int nested_from_pod(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct device *dev;

	dev = bpf_map_lookup_elem(&nested_devices, &ifindex);
	if (!dev)
		return pod_exit(skb, NESTED_UNKNOWN_DEVICE, 0);
	return pod_exit(skb, pod_reason(skb, dev), dev->tag);
}
