/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Everything that the programs share with Go: bpf2go turns these structs and
 * enums into Go types, and abi_test.go holds both sides to the same layout.
 * Fields are in host byte order unless they are __be16 or __be32.
 */
#ifndef __TYPES_H
#define __TYPES_H

#include <linux/types.h>

#define MAX_PREFIXES 4
#define PORT_WORDS 1024 /* 65536 ports, one bit each */

/*
 * Why a packet went where it went. The order carries the verdict: what is
 * below REASON_OVN_FIRST passes to the host, and so on up to the drops.
 * table.go names them; the names are stable, the numbers are not.
 */
enum reason {
	/* uplink: to the host */
	REASON_DEFAULT,
	REASON_GENEVE,
	REASON_ARP_REQUEST,
	REASON_ARP_OTHER,
	REASON_ND_SOLICIT,
	REASON_ND_OTHER,
	REASON_OTHER_MAC,
	REASON_MULTICAST,
	REASON_VLAN,
	REASON_NOT_IP,
	REASON_MALFORMED,
	REASON_FRAGMENT,
	REASON_SNAT_SYN,
	REASON_HOST_SOCKET,
	REASON_ICMP_ECHO,
	REASON_ICMP_ECHO_REPLY,
	REASON_ICMP_ERROR_HOST,
	REASON_NOT_OURS,
	REASON_PASS_UNCONFIGURED,

	/* uplink: to OVN */
	REASON_OVN_FIRST,
	REASON_GENEVE_OVN = REASON_OVN_FIRST,
	REASON_SERVICE,
	REASON_SNAT_PORT,
	REASON_ICMP_ECHO_REPLY_NS,
	REASON_ICMP_ERROR_OVN,
	REASON_PROTO_NS,
	REASON_FRAGMENT_OVN,
	REASON_ND_SOLICIT_OVN,
	REASON_OVN_ADDRESS,

	/* uplink: a copy each */
	REASON_BOTH_FIRST,
	REASON_ARP_REPLY = REASON_BOTH_FIRST,
	REASON_ARP_GRATUITOUS,
	REASON_ND_ADVERT,
	REASON_ROUTER_ADVERT,

	/* bridge: out of the uplink */
	REASON_OUT_FIRST,
	REASON_OUT = REASON_OUT_FIRST,
	REASON_OUT_LEARNED,
	REASON_NEIGHBOUR_OUT, /* ARP and ND, no traffic of a pod's */
	REASON_ENCAP_OUT,

	/* bridge: dropped */
	REASON_DROP_FIRST,
	REASON_BAD_MAC = REASON_DROP_FIRST,
	REASON_SVC_LEAK,
	REASON_UNSNATED,
	REASON_NO_UPLINK,

	REASON_MAX,
};

/* An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d. */
struct addr {
	__be32 w[4];
};

/* A prefix; an address is in it when (address & mask) == net. */
struct prefix4 {
	__be32 net;
	__be32 mask;
};

struct prefix6 {
	struct addr net;
	struct addr mask;
};

/*
 * The one cell of configuration. Go rewrites it while the programs run, so
 * each field must make sense beside the old value of any other.
 */
struct config {
	__u64 node_mac; /* the six bytes as they are on the wire, then zeros */
	__u32 uplink;	/* interface indexes; 0: hand nothing over */
	__u32 bridge;
	__be32 node4; /* 0: family off */
	__u16 snat_first;
	__u16 snat_span; /* last - first */
	__u16 geneve_port;
	__u8 has_encap;
	__u8 has_node6;
	__u8 svc4_count;
	__u8 pod4_count;
	__u8 svc6_count;
	__u8 pod6_count;
	struct addr node4_mapped;
	struct addr node6;
	struct addr encap;  /* of the userspace datapath */
	struct addr gr_lla; /* link-local address OVN derives from node_mac */
	struct prefix4 svc4[MAX_PREFIXES];
	struct prefix4 pod4[MAX_PREFIXES];
	struct prefix6 svc6[MAX_PREFIXES];
	struct prefix6 pod6[MAX_PREFIXES];
};
_Static_assert(sizeof(struct config) == 416, "config is shared with Go");

/* A service's front end: owned by OVN whatever else says otherwise. */
struct service_key {
	struct addr addr;
	__be16 port;
	__u8 proto;
	__u8 pad;
};
_Static_assert(sizeof(struct service_key) == 20, "service_key is shared with Go");

/*
 * An exchange OVN began that has no ports to tell it by: ICMP echo by its
 * identifier, other protocols with id 0.
 */
struct ns_key {
	struct addr remote;
	__be16 id;
	__u8 proto;
	__u8 pad;
};
_Static_assert(sizeof(struct ns_key) == 20, "ns_key is shared with Go");

/* A datagram whose first fragment went to OVN. */
struct frag_key {
	struct addr src;
	struct addr dst;
	__u32 id;
	__u8 proto; /* 0 with IPv6, where id alone is unique */
	__u8 pad[3];
};
_Static_assert(sizeof(struct frag_key) == 40, "frag_key is shared with Go");

/* When an entry of the ns or frags table was last used, CLOCK_MONOTONIC. */
struct seen {
	__u64 ns;
};
_Static_assert(sizeof(struct seen) == 8, "seen is shared with Go");

/* Ports on which a host socket may have to be asked for: one bit each. */
struct port_bits {
	__u64 tcp[PORT_WORDS];
	__u64 udp[PORT_WORDS];
};
_Static_assert(sizeof(struct port_bits) == 16384, "port_bits is shared with Go");

struct cell {
	__u64 packets;
	__u64 bytes;
};

struct cells {
	struct cell reason[REASON_MAX];
};
_Static_assert(sizeof(struct cells) == REASON_MAX * 16, "cells is shared with Go");

#endif /* __TYPES_H */
