/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The address ranges of the configuration, and the table of the cluster's networks. */
#ifndef __PREFIX_H
#define __PREFIX_H

#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"

static __always_inline int in_prefixes4(__be32 ip, const struct prefix4 *set, __u8 count)
{
	int i;

	for (i = 0; i < MAX_PREFIXES && i < count; i++) {
		if ((ip & set[i].mask) == set[i].net)
			return 1;
	}
	return 0;
}

static __always_inline int in_prefix6(const struct addr *a, const struct prefix6 *p)
{
	return (a->w[0] & p->mask.w[0]) == p->net.w[0] && (a->w[1] & p->mask.w[1]) == p->net.w[1] &&
	       (a->w[2] & p->mask.w[2]) == p->net.w[2] && (a->w[3] & p->mask.w[3]) == p->net.w[3];
}

static __always_inline int in_prefixes6(const struct addr *a, const struct prefix6 *set, __u8 count)
{
	int i;

	for (i = 0; i < MAX_PREFIXES && i < count; i++) {
		if (in_prefix6(a, &set[i]))
			return 1;
	}
	return 0;
}

/* Reports whether it is a pod of this node that is reachable from outside by its own address. */
static __always_inline int is_routable(__u8 v6, const struct addr *a)
{
	return v6 ? in_prefixes6(a, cfg.routable6, cfg.routable6_count)
		  : in_prefixes4(a->w[3], cfg.routable4, cfg.routable4_count);
}

/*
 * The digests of internal networks, as in internalBits in network.go. A set bit for an address of
 * another network costs a lookup.
 */
static __always_inline int may_be_internal4(__be32 ip)
{
	return test_port(internal4, ip);
}

/* first and second: words of the address, of which the digest has the first 48 bits. */
static __always_inline int may_be_internal6(__be32 first, __be32 second)
{
	__u32 hash = (first ^ second << 16) * 0x9e3779b1 >> 20;

	return internal6[hash >> 6] >> (hash & 63) & 1;
}

/* Returns the kind of an address in the table of networks; 0: none. */
static __noinline int network_of(const struct addr *a)
{
	struct network_key k = { .bits = 128 };
	__u8 *network;
	int kind;

	k.addr = *a;
	network = bpf_map_lookup_elem(&networks, &k);
	kind = network ? *network : 0;
	note(ASKED_NETWORK, kind, a, 0, 0, NULL);
	return kind;
}

/*
 * Reports whether the address is in a network that never appears on the wire. Addresses of other
 * nodes are on the wire regardless of network. Not static: see parse().
 */
__noinline int is_internal(__u32 v6, const struct addr *a)
{
	struct addr key; /* Linux 6.1 rejects an argument of a global function as a map key */

	if (!a)
		return 0;
	if (v6 ? !may_be_internal6(a->w[0], a->w[1]) : !may_be_internal4(a->w[3]))
		return 0;
	if (v6 && !a->w[0] && !a->w[1] && a->w[2] == bpf_htonl(0xffff))
		return 0; /* see is_mapped() */
	key = *a;
	return network_of(&key) == NETWORK_INTERNAL && kind_of(&key) != ADDR_PEER;
}

#endif /* __PREFIX_H */
