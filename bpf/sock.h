/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The host's sockets: types that the programs share with Go, and the tables. A frontend leads to a
 * numbered set of backends: sock_frontends has the set's number and size, and sock_backends has its
 * slots. The other maps remember choices, for replies and for later connections.
 */
#ifndef __SOCK_H
#define __SOCK_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* The destination that a socket requests. A wildcard address means any address of the host. */
struct front_key {
	struct addr addr;
	__be16 port;
	__u8 proto;
	__u8 pad;
};
_Static_assert(sizeof(struct front_key) == 20, "front_key is shared with Go");

/*
 * This bit of a wildcard frontend excludes loopback addresses. Programs and tables of earlier
 * versions have the same field. Such a program keeps the choice for longer, which has no effect,
 * because the frontend has one backend.
 */
#define FRONT_NOT_LOOPBACK 0x80000000u

/* A frontend: it leads to a set of backends. */
struct front {
	__u32 set;
	__u32 count;	/* number of backends in the set; 0: refuse */
	__u32 affinity; /* seconds that a choice is kept; 0: none; and FRONT_NOT_LOOPBACK */
};
_Static_assert(sizeof(struct front) == 12, "front is shared with Go");

/* A place in a set of backends. */
struct back_key {
	__u32 set;
	__u32 slot;
};
_Static_assert(sizeof(struct back_key) == 8, "back_key is shared with Go");

/* A backend. In choices of replies and in struct peer it may also be a frontend. */
struct back {
	struct addr addr;
	__be16 port;
	__u16 pad;
};
_Static_assert(sizeof(struct back) == 20, "back is shared with Go");

/* A chosen backend, and its slot in the set at that time. */
struct choice {
	struct back back;
	__u32 set;
	__u32 slot;
};

/* The choice that a set's next connections keep: session affinity. */
struct stuck {
	__u64 ns; /* of the last use */
	struct choice choice;
	__u32 pad;
};

/* The frontend that a connected socket requested, and its backend. */
struct peer {
	struct back front;
	struct back back;
};

/* One peer of an unconnected socket: its frontend or its backend. */
struct exchange_key {
	__u64 cookie;
	struct back peer;
	__u32 reply; /* 1: peer is a backend, the value is the frontend */
};

/* From Go: where each frontend leads. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__type(key, struct front_key);
	__type(value, struct front);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_frontends SEC(".maps");

/* From Go: the backends of all sets. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 262144);
	__type(key, struct back_key);
	__type(value, struct back);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_backends SEC(".maps");

/* The host's addresses except loopback: the meaning of a wildcard frontend, see is_own(). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct addr);
	__type(value, __u8);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_addrs SEC(".maps");

/* The host is one client, so affinity is stored per set. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct stuck);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_affinity SEC(".maps");

/*
 * The peers of connected sockets. The kernel deletes an entry with its socket, and no other entry
 * can evict it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct peer);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_peers SEC(".maps");

/*
 * The backends of UDP sockets that a frontend connected, by the socket's cookie. Go cannot read the
 * storage of other processes' sockets.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct back);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_connected SEC(".maps");

/* Exchanges of unconnected UDP sockets: what each peer stands for, see struct exchange_key. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct exchange_key);
	__type(value, struct choice);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_exchanges SEC(".maps");

/*
 * Connecting TCP sockets of the agent, by cookie, that no frontend translates. An entry is needed
 * only until its socket connects, and the agent adds one for each of its few connections.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, __u8);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} sock_exempt SEC(".maps");

#endif /* __SOCK_H */
