/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The state of the gateway's programs, and functions that read it: configuration, tables from Go,
 * what the programs learn, and counters. Pinned maps survive the agent. During an upgrade, the old
 * and the new programs share them. Global variables and maps without a pin belong to one load of
 * the programs, and Go fills them again at each load.
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

/*
 * These are global variables and not maps, because they need no lookup. Apart from the
 * configuration they are digests (digest.go): bitmaps that save a lookup in a table. If a bit is
 * clear, the table has no entry. If it is set, the table may have one.
 */
struct config cfg SEC(".data.config");

/* Local ports of frontends (services), of connections in takeover, and of BFD: one bit each. */
__u64 special_ports[PORT_WORDS] SEC(".data.ports");

/* Addresses in host_addrs, and the node's own, by a hash: see may_be_host(). */
__u64 host_digest[HOST_WORDS] SEC(".data.hosts");
__u8 has_former SEC(".data.hosts"); /* host_addrs has an entry ADDR_FORMER */

/* Internal networks (networks). IPv4: by the first 16 bits. IPv6: by a hash of the first 48. */
__u64 internal4[PORT_WORDS] SEC(".data.nets");
__u64 internal6[HOST_WORDS] SEC(".data.nets");

/* Packets and bytes by reason, in one entry: see count.h. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cells);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} counters SEC(".maps");

/*
 * Exchanges without ports that OVN has begun, and when OVN last sent a packet of each. The programs
 * add them (learn_exchange() in out.h), and give replies to OVN (in_ns() in state.h). ns is short
 * for north-south, as traffic between pods and the outside is called.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct ns_key);
	__type(value, struct seen);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} ns SEC(".maps");

/* Who received the first fragment of a datagram. Later fragments follow it: see fragment.h. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct frag_key);
	__type(value, struct frag_seen);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} frags SEC(".maps");

/* The owners of Services' frontends, from Go: see service_owner() in port.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct service_key);
	__type(value, __u8); /* enum service_owner */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} services SEC(".maps");

/* Addresses that the rules distinguish, from Go. Despite its name, not all are the host's. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct addr);
	__type(value, __u8); /* enum addr_kind */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} host_addrs SEC(".maps");

/*
 * Networks of the cluster, and exceptions inside them, from Go. An IPv4 network is stored like IPv4
 * addresses, inside ::ffff:0:0/96, so 96 is added to the length of its prefix.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 16384);
	__type(key, struct network_key);
	__type(value, __u8); /* enum network */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} networks SEC(".maps");

/*
 * Connections of OVN that its local ports do not identify, because they are older than the node's
 * takeover from ovn-kubernetes or than a change of the SNAT range. The value is the time of the
 * last packet. Only Go adds entries, so no packet can evict one: see in_takeover() in state.h.
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

/*
 * Reports whether it is the node's own address of a family: OVN's gateway router shares this one
 * with the host. Other addresses of the host belong only to the host.
 */
static __always_inline int is_node(const struct addr *a)
{
	return (cfg.node4 && addr_eq(a, &cfg.node4_mapped)) ||
	       (cfg.has_node6 && addr_eq(a, &cfg.node6));
}

/* Returns the enum addr_kind of an address. The addresses in cfg need no entry in the table. */
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

/* The same, and records the lookup for 'ovnkube gateway explain'. */
static __always_inline __u32 kind_of(const struct addr *a)
{
	__u32 kind = find_kind(a);

	note(ASKED_ADDRESS, kind, a, 0, 0, NULL);
	return kind;
}

/* Reports whether the host has the address, alone or shared with OVN's gateway router. */
static __always_inline int is_host(const struct addr *a)
{
	return kind_of(a) == ADDR_HOST;
}

/*
 * Tests an address by the exclusive or of its words, or an IPv4 address itself. hostBit in
 * digest.go computes the same: the upper 12 bits of a multiplicative hash. A false positive only
 * costs the full path.
 */
static __always_inline int may_be_host(__u32 hash)
{
	hash = hash * 0x9e3779b1 >> 20;
	return host_digest[hash >> 6] >> (hash & 63) & 1;
}

/*
 * Whether packets of Services are counted. It is constant, so that the verifier removes this code
 * from the programs if counting is off.
 */
const volatile __u8 count_services;

/* The index of each frontend's cell in service_counts. Frontends of one Service port share a cell.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct service_key);
	__type(value, __u32);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} service_slots SEC(".maps");

/* Packets and bytes of each Service port. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* Go sets the size */
	__type(key, __u32);
	__type(value, struct cell);
} service_counts SEC(".maps");

/*
 * Limits a port to 16 bits, for the verifier. Clang knows that a __u16 is in range, and would drop
 * the mask. It cannot optimize across the asm.
 */
static __always_inline __u32 bounded_port(__u32 port)
{
	asm volatile("%0 &= 0xffff" : "+r"(port));
	return port;
}

/* Tests the port's bit in a bitmap of PORT_WORDS words. */
static __always_inline int test_port(const __u64 *bits, __u16 port)
{
	__u32 p = bounded_port(port);

	return bits[p >> 6] >> (p & 63) & 1;
}

/* One comparison for both limits: below the first port, the unsigned difference is too large. */
static __always_inline int in_snat_range(__u16 port)
{
	return (__u16)(port - cfg.snat_first) < cfg.snat_count;
}

/* Reports whether a packet with this protocol and destination port is for the tunnels. */
static __always_inline int is_geneve_port(__u8 proto, __be16 dport)
{
	return proto == IPPROTO_UDP && bpf_ntohs(dport) == cfg.geneve_port;
}

/* Reports whether the programs can hand packets over between uplink and gateway bridge. */
static __always_inline int connected(void)
{
	return cfg.uplink && cfg.bridge;
}

/*
 * Returns the reason of a packet from the wire after the last rule, which all rules share: packets
 * for OVN go to the host while OVN is unreachable.
 */
static __always_inline __u32 final_wire_reason(__u32 reason)
{
	if ((wire_to_ovn(reason) || wire_to_both(reason)) && !connected())
		return REASON_PASS_UNCONFIGURED;
	return reason;
}

/*
 * Returns the reason of a packet from OVN after the last rule, which all rules share: packets that
 * do not stay on the node are dropped while the uplink is unreachable.
 */
static __always_inline __u32 final_ovn_reason(__u32 reason)
{
	return !ovn_to_host(reason) && !connected() ? REASON_NO_UPLINK : reason;
}

#endif /* __MAPS_H */
