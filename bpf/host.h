/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Ports and protocols of the host's own sockets. gate.bpf.c writes them, the gateway reads them. */
#ifndef __HOST_H
#define __HOST_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

/* Protocols without ports that the host itself uses, by peer. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct ns_key);
	__type(value, __u8);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} host_protos SEC(".maps");

/*
 * Ports that a socket of the host may have. A packet to another port needs no socket lookup, so in
 * names this bitmap is the gate.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_bits);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} host_sockets SEC(".maps");

#endif /* __HOST_H */
