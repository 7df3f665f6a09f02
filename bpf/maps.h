/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * State. Pinned maps survive the agent and are shared by the programs before and after an upgrade.
 * Globals belong to one load.
 */
#ifndef __MAPS_H
#define __MAPS_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "host.h"
#include "note.h"
#include "types.h"

/* These are globals and not maps, because globals need no lookup. */
struct config cfg SEC(".data.config");
__u64 special_ports[PORT_WORDS] SEC(".data.ports"); /* digest: see digest.go */
__u64 host_digest[HOST_WORDS] SEC(".data.hosts");   /* digest of the host's addresses */
__u8 has_former SEC(".data.hosts");		    /* an address in the table is ADDR_FORMER */
__u64 internal4[PORT_WORDS] SEC(".data.nets");	    /* digest of internal networks, by 16 bits */
__u64 internal6[HOST_WORDS] SEC(".data.nets");	    /* the same, by a hash of 48 bits */

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cells);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct ns_key);
	__type(value, struct seen);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} ns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct frag_key);
	__type(value, struct frag_seen);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} frags SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct service_key);
	__type(value, __u8); /* enum service_owner */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct addr);
	__type(value, __u8); /* enum addr_kind */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} host_addrs SEC(".maps");

/* IPv4 networks are mapped as addresses are. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__type(key, struct network_key);
	__type(value, __u8); /* enum network */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} networks SEC(".maps");

/*
 * Connections from before a takeover or a change of the range. Only Go adds entries, so no packet
 * can evict one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct flow_key);
	__type(value, struct seen);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} takeover SEC(".maps");

static __always_inline int addr_eq(const struct addr *a, const struct addr *b)
{
	return a->w[0] == b->w[0] && a->w[1] == b->w[1] && a->w[2] == b->w[2] && a->w[3] == b->w[3];
}

/* Reports whether OVN's gateway router shares the address with the host. */
static __always_inline int is_node(const struct addr *a)
{
	return (cfg.node4 && addr_eq(a, &cfg.node4_mapped)) ||
	       (cfg.has_node6 && addr_eq(a, &cfg.node6));
}

static __always_inline __u32 find_kind(const struct addr *a)
{
	__u8 *kind;

	if (is_node(a))
		return ADDR_HOST;
	kind = bpf_map_lookup_elem(&host_addrs, a);
	if (kind)
		return *kind;
	return addr_eq(a, &cfg.gr_lla) ? ADDR_OVN : ADDR_OTHER;
}

static __always_inline __u32 kind_of(const struct addr *a)
{
	__u32 kind = find_kind(a);

	note(ASKED_ADDRESS, kind, a, 0, 0, NULL);
	return kind;
}

static __always_inline int is_host(const struct addr *a)
{
	return kind_of(a) == ADDR_HOST;
}

/* Tests the bit that hostBit in digest.go computes. A false positive only costs the full path. */
static __always_inline int may_be_host(__u32 hash)
{
	hash = hash * 0x9e3779b1 >> 20;
	return host_digest[hash >> 6] >> (hash & 63) & 1;
}

/*
 * Packets and bytes of each Service port, and the cell of each frontend. They belong to one load:
 * Go allocates the cells again. If counting is off, the verifier removes this code from the
 * programs.
 */
const volatile __u8 count_services;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct service_key);
	__type(value, __u32);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} service_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* Go sets the size */
	__type(key, __u32);
	__type(value, struct cell);
} service_counts SEC(".maps");

/*
 * Clang knows that a __u16 is in range and drops a mask that the verifier needs. It cannot optimize
 * across the asm.
 */
static __always_inline __u32 bounded_port(__u32 port)
{
	asm volatile("%0 &= 0xffff" : "+r"(port));
	return port;
}

static __always_inline int test_port(const __u64 *bits, __u16 port)
{
	__u32 p = bounded_port(port);

	return bits[p >> 6] >> (p & 63) & 1;
}

static __always_inline int in_snat_range(__u16 port)
{
	return (__u16)(port - cfg.snat_first) < cfg.snat_count;
}

/* Reports whether a packet with this protocol and destination port is for the tunnels. */
static __always_inline int is_geneve_port(__u8 proto, __be16 dport)
{
	return proto == IPPROTO_UDP && bpf_ntohs(dport) == cfg.geneve_port;
}

static __always_inline int connected(void)
{
	return cfg.uplink && cfg.bridge;
}

/* Returns the final reason of a packet from the wire: a drop reason if its receiver is missing. */
static __always_inline __u32 settled_wire(__u32 reason)
{
	if ((wire_to_ovn(reason) || wire_to_both(reason)) && !connected())
		return REASON_PASS_UNCONFIGURED;
	return reason;
}

static __always_inline __u32 settled_ovn(__u32 reason)
{
	return !ovn_to_host(reason) && !connected() ? REASON_NO_UPLINK : reason;
}

#endif /* __MAPS_H */
