/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * State of nested pods, shared with Go. All maps are pinned: they survive the agent and are shared
 * by the programs before and after an upgrade.
 */
#ifndef __NESTED_H
#define __NESTED_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

#define VLAN_VID_MASK 0xfff
#define VLAN_IDS 4096
#define MAX_HOST_ADDRS 1024

/*
 * The reason for a packet's verdict. The order encodes the direction. nestedcount.go has the names.
 */
enum nested_reason {
	/* from the wire */
	NESTED_IN,
	NESTED_NO_POD,
	NESTED_FOREIGN_VLAN,

	/* from a pod */
	NESTED_OUT,
	NESTED_OUT_FIRST = NESTED_OUT,
	NESTED_HOST,
	NESTED_SPOOFED_VLAN,
	NESTED_SPOOFED_SOURCE,
	NESTED_UNKNOWN_DEVICE,
	NESTED_REASON_MAX,
};

enum vlan_flag {
	VLAN_POOL = 1,	  /* one of the node's pool of ports */
	VLAN_LIMITED = 2, /* the pod's bandwidth limit is a queue at the host's end of its veth */
};

/* A VLAN tag. Go changes an entry by one write of eight bytes. */
struct vlan {
	__u32 ifindex; /* of the host's end of the pod's veth; 0: no pod has the tag */
	__u32 flags;   /* enum vlan_flag */
};
_Static_assert(sizeof(struct vlan) == 8, "vlan is shared with Go");

enum device_flag {
	DEVICE_IP4 = 1,
	DEVICE_IP6 = 2,
};

/* A pod's device. The tag is the pod's identity on the wire. */
struct device {
	__u16 tag;
	__u8 mac[ETH_ALEN];
	__be32 ip4;
	struct addr ip6;
	__u32 flags; /* enum device_flag: the pod's families */
};
_Static_assert(sizeof(struct device) == 32, "device is shared with Go");

/* By VLAN tag: for packets from the wire. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, VLAN_IDS);
	__type(key, __u32);
	__type(value, struct vlan);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} nested_tags SEC(".maps");

/* By the interface index of the host's end of a pod's veth: for packets of the pod. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, VLAN_IDS);
	__type(key, __u32);
	__type(value, struct device);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} nested_devices SEC(".maps");

/* The VM's own addresses. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_HOST_ADDRS);
	__type(key, struct addr);
	__type(value, __u8);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} nested_host SEC(".maps");

/* Receivers of first fragments: FRAG_HOST is the VM, FRAG_OVN is the wire. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct frag_key);
	__type(value, struct frag_seen);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} nested_frags SEC(".maps");

/* Packets and bytes, by enum nested_reason. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NESTED_REASON_MAX);
	__type(key, __u32);
	__type(value, struct cell);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} nested_counts SEC(".maps");

#endif /* __NESTED_H */
