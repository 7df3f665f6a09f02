/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Types of the tables for shortcuts, shared with Go. short.h says what a shortcut is. */
#ifndef __ENTRY_H
#define __ENTRY_H

#include "types.h"

/* Where a packet was seen. */
enum origin {
	ORIGIN_POD,
	ORIGIN_WIRE,
};

/* A packet's addresses and ports as it arrives: one direction of a connection. */
struct tuple {
	struct addr src;
	struct addr dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 origin; /* enum origin */
	__u8 pad[2];
};

/*
 * The key of a shortcut. It is short, because each packet pays for its hash. It contains IPv4
 * addresses, but only digests of IPv6 addresses: see find_shortcut().
 */
struct shortcut_key {
	__u32 src;
	__u32 dst;
	__be16 sport;
	__be16 dport;
	__u8 proto;
	__u8 origin;
	__u8 v6;
	__u8 pad;
};
_Static_assert(sizeof(struct shortcut_key) == 16, "shortcut_key is shared with Go");

/*
 * How OVS translates the packets of a tuple. Times are those of CLOCK_MONOTONIC at the last tick.
 * The fields *_diff are the changes of the sum of 16-bit words that is in a checksum (RFC 1624):
 * see set_diffs().
 */
struct shortcut {
	__u64 until; /* end of the lease; 0: a packet must go through OVS first */
	__u32 epoch;
	__u32 device;	 /* from the wire: the pod's; from a pod: where the packet must come from */
	struct addr src; /* after the translation */
	struct addr dst;
	__be16 sport;
	__be16 dport;
	__u8 macs[12]; /* destination and source, after */
	__u8 from[6];  /* source MAC address of the pod's packet; from the wire: unused */
	__u16 longest; /* length of IP packets that OVS is known to let through */
	__u16 ip_diff; /* IPv4: of the header; IPv6: of the data that CHECKSUM_COMPLETE covers */
	__u8 hops;     /* decrement of TTL or hop limit */
	/*
	 * From the wire: a packet has entered OVS since the last renewal, see seen_in(). From a
	 * pod: number of packets since the pod ended the connection, see end_connection().
	 */
	__u8 seen;
	__u32 addr_diff; /* of the pseudo header */
	__u32 port_diff;
	__u32 renewals; /* of the lease */
	__u32 number;	/* from the wire: of the pod's counts in pod_received */
	__u8 used;	/* from the wire: a packet has used it since the last renewal */
	__u8 tries;	/* from a pod: see is_worth_a_try() */
	__u8 pad[2];
	struct addr was_src; /* before the translation */
	struct addr was_dst;
};
_Static_assert(sizeof(struct shortcut) == 128, "shortcut is shared with Go");

/*
 * A pod's device. The length that OVN lets through depends on the router, not on the connection, so
 * a new connection need not show it again.
 */
struct pod_port {
	__u32 mtu;     /* 0: its packets must not become shortcuts */
	__u32 number;  /* of its counts in pod_received */
	__u32 longest; /* length of the device's IP packets that OVS is known to let through */
	__u32 epoch;   /* in which OVS let a packet of this length through */
};

/* Packets that a pod received past its device. The numbers of deleted pods are used again. */
struct pod_cell {
	struct cell cell;
	__u32 device; /* of the pod; 0: the number is free */
	__u32 pad;
};
_Static_assert(sizeof(struct pod_cell) == 24, "pod_cell is shared with Go");

/* Counts of shortcuts, per CPU. */
struct shortcut_counts {
	__u64 created;	  /* entries, not in place of another */
	__u64 renewed;	  /* connections, by a packet of each direction */
	__u64 unseen;	  /* packets of pods that found no slot */
	__u64 mismatched; /* entries in use that OVS contradicted: see count_contradiction() */
};
_Static_assert(sizeof(struct shortcut_counts) == 32, "shortcut_counts is shared with Go");

#endif /* __ENTRY_H */
