/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Types that the programs share with Go; entry.h has those of shortcuts. bpf2go converts these
 * structs and enums to Go types, and abi_test.go compares both layouts. Fields are in host byte
 * order unless they are __be16 or __be32.
 */
#ifndef __TYPES_H
#define __TYPES_H

#include <linux/types.h>

#include "reason.h"

#define MAX_PREFIXES 4
#define PORT_WORDS 1024 /* 65536 ports, one bit each */
#define HOST_WORDS 64	/* 4096 bits, by a hash of the address */

#define NSEC_PER_SEC 1000000000ULL
#define FRAG_TIMEOUT (30 * NSEC_PER_SEC) /* as the kernel's reassembly */

#define MARK_OVN 0x6f76	 /* "ov": a flow of the bridge sends it to OVN */
#define MARK_HOST 0x686f /* "ho": set by a flow of the bridge on host packets */
#define TC_HOST 0x686f	 /* tc_index of host packets; above MAX_SLOTS */
#define MAX_SLOTS 0x4000 /* tc_index of a packet inside OVS: 1 + its slot */

/*
 * Marks of layout bridged, from the program that sends a packet past OVS to the program at the
 * uplink's egress, which lets the packet pass. The kernel clears the mark of a packet that leaves a
 * network namespace, but not tc_index: a pod could forge that.
 */
#define MARK_HOST_SENT 0x6873 /* "hs" */
#define MARK_POD_SENT 0x7073  /* "ps" */

/* An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d. */
struct addr {
	__be32 w[4];
};

/* A prefix. An address is in it if (address & mask) == net. */
struct prefix4 {
	__be32 net;
	__be32 mask;
};

struct prefix6 {
	struct addr net;
	struct addr mask;
};

/*
 * The configuration, one cell. Go rewrites it while the programs run, so each field must be valid
 * together with the old value of any other.
 */
struct config {
	__u64 node_mac; /* the six bytes as they are on the wire, then zeros */
	__u32 uplink;	/* interface indexes; 0: no handover */
	__u32 bridge;
	__be32 node4; /* 0: family off */
	__u16 snat_first;
	__u16 snat_count; /* 0: OVN owns no port, as in local gateway mode */
	__u16 geneve_port;
	__u16 vlan;	/* the gateway network's tag; 0: untagged */
	__u32 mtu;	/* maximum length of OVN's IP packets in local mode; 0: any */
	__u8 has_encap; /* encap is set */
	__u8 has_node6; /* node6 is set */
	__u8 local;	/* local gateway mode */
	__u8 bfd;	/* BFD is enabled */
	__u8 in_sync;	/* OVN may announce addresses */
	__u8 takeover;	/* the takeover table has entries */
	/* numbers of prefixes in the arrays below */
	__u8 svc4_count;
	__u8 pod4_count;
	__u8 svc6_count;
	__u8 pod6_count;
	__u8 routable4_count;
	__u8 routable6_count;
	__u8 masq4_count;
	__u8 masq6_count;
	__u8 tunnel4_count;
	__u8 tunnel6_count;
	struct addr node4_mapped;
	struct addr node6;
	struct addr encap;  /* of the userspace datapath */
	struct addr gr_lla; /* link-local address OVN derives from node_mac */
	/* networks of ClusterIPs, and of all pods */
	struct prefix4 svc4[MAX_PREFIXES];
	struct prefix4 pod4[MAX_PREFIXES];
	struct prefix4 routable4[MAX_PREFIXES]; /* of this node's pods that need no NAT */
	struct prefix4 masq4[MAX_PREFIXES];	/* between host and OVN, never on the wire */
	struct prefix4 tunnel4[MAX_PREFIXES];	/* to which pods may send tunnel packets */
	struct prefix6 svc6[MAX_PREFIXES];
	struct prefix6 pod6[MAX_PREFIXES];
	struct prefix6 routable6[MAX_PREFIXES];
	struct prefix6 masq6[MAX_PREFIXES];
	struct prefix6 tunnel6[MAX_PREFIXES];
};
_Static_assert(sizeof(struct config) == 912, "config is shared with Go");

/* The kind of an address: the value in the table of addresses. */
enum addr_kind {
	ADDR_OTHER, /* in no table */
	ADDR_HOST,
	ADDR_VIP,    /* of a service, announced by the host */
	ADDR_OVN,    /* only OVN has it */
	ADDR_PEER,   /* of another node */
	ADDR_FORMER, /* former host address without an owner */
};

/* The kind of a network: the value in the table of networks. The longest prefix decides. */
enum network {
	NETWORK_INTERNAL = 1, /* the cluster's own: never on the wire */
	NETWORK_EXTERNAL,     /* inside an internal one, but on the wire */
};

struct network_key {
	__u32 bits; /* length of the prefix of addr; IPv4 adds 96 */
	struct addr addr;
};
_Static_assert(sizeof(struct network_key) == 20, "network_key is shared with Go");

/* The owner of a frontend: the value in the table of services. */
enum service_owner {
	SERVICE_OVN = 1,
	SERVICE_HOST, /* a host socket, found by sk_lookup */
};

/* A Service's frontend. Its owner takes precedence over other rules. */
struct service_key {
	struct addr addr;
	__be16 port;
	__u8 proto;
	__u8 pad;
};
_Static_assert(sizeof(struct service_key) == 20, "service_key is shared with Go");

/*
 * An exchange without ports: ICMP echo with its identifier, other protocols with ID 0. A protocol
 * that the host uses with any peer has the unspecified address of the family, with IPv4 mapped as
 * usual.
 */
struct ns_key {
	struct addr remote;
	__be16 id;
	__u8 proto;
	__u8 pad;
};
_Static_assert(sizeof(struct ns_key) == 20, "ns_key is shared with Go");

/* A connection of OVN that its local port does not identify. */
struct flow_key {
	struct addr remote;
	struct addr local;
	__be16 remote_port;
	__be16 local_port;
	__u8 proto;
	__u8 pad[3];
};
_Static_assert(sizeof(struct flow_key) == 40, "flow_key is shared with Go");

/* A datagram whose first fragment has been decided. */
struct frag_key {
	struct addr src;
	struct addr dst;
	__u32 id;
	__u8 proto; /* 0 with IPv6, where ID alone is unique */
	__u8 pad[3];
};
_Static_assert(sizeof(struct frag_key) == 40, "frag_key is shared with Go");

/* When an entry was last used, CLOCK_MONOTONIC. */
struct seen {
	__u64 ns;
};
_Static_assert(sizeof(struct seen) == 8, "seen is shared with Go");

/* Receiver of a datagram's first fragment. */
enum frag_owner {
	FRAG_HOST,
	FRAG_OVN,
	FRAG_BOTH,
	FRAG_DROPPED,
};

/* Time and receiver of a datagram's first fragment. */
struct frag_seen {
	__u64 ns;
	__u8 owner; /* enum frag_owner */
	__u8 pad[7];
};
_Static_assert(sizeof(struct frag_seen) == 16, "frag_seen is shared with Go");

/* Ports that a host socket may use: one bit each. */
struct port_bits {
	__u64 tcp[PORT_WORDS];
	__u64 udp[PORT_WORDS];
};
_Static_assert(sizeof(struct port_bits) == 16384, "port_bits is shared with Go");

/* A counter of one CPU. */
struct cell {
	__u64 packets;
	__u64 bytes;
};

/* The counters of all reasons, by their number. */
struct cells {
	struct cell reason[REASON_MAX];
};
_Static_assert(sizeof(struct cells) == REASON_MAX * 16, "cells is shared with Go");

#endif /* __TYPES_H */
