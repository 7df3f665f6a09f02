// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * Keeps host_sockets up to date, the ports that sockets of the host may have. When a socket binds,
 * and again when it connects, its port is set. bpf/gate.go clears the ports that no socket has any
 * more. When a raw socket is created, its protocol is added to host_protos.
 */
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "host.h"
#include "types.h"

#define AF_INET 2
#define AF_INET6 10
#define SOCK_RAW 3

char _license[] SEC("license") = "GPL";

const volatile __u64 host_netns = 0; /* cookie of the host's network namespace, set by Go */

/* The current period, counted by Go. Its lowest bit is the key in gate_recent that is written. */
__u32 period = 0;

/* Ports that a socket bound, or connected from, in this period and in the one before: see
 * nextPeriod() in gate.go. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct port_bits);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} gate_recent SEC(".maps");

static __always_inline void set_bit(struct port_bits *bits, __u32 proto, __u32 port)
{
	__u64 *words = proto == IPPROTO_TCP ? bits->tcp : bits->udp;

	/* the verifier must see the bound in the register that is used */
	asm volatile("%0 &= 0xffff" : "+r"(port));
	__sync_fetch_and_or(&words[port >> 6], 1ull << (port & 63));
}

/* Returns 1, which lets the socket's call continue. */
static __always_inline int record_port(__u32 port, __u32 proto)
{
	__u32 zero = 0, now = period & 1;
	struct port_bits *bits;

	/* in this order, because Go overwrites host_sockets and reads gate_recent afterwards */
	bits = bpf_map_lookup_elem(&gate_recent, &now);
	if (bits)
		set_bit(bits, proto, port);

	bits = bpf_map_lookup_elem(&host_sockets, &zero);
	if (bits)
		set_bit(bits, proto, port);
	return 1;
}

/* Reports whether a socket needs a bit: it is the host's, and has a port. */
static __always_inline int is_host_port(__u32 port, __u32 proto, __u64 netns)
{
	return port && (proto == IPPROTO_TCP || proto == IPPROTO_UDP) && netns == host_netns;
}

/* Packets from outside cannot reach a loopback address. */
static __always_inline int is_loopback(__u32 ip4)
{
	return (ip4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
}

static __always_inline int after_bind(struct bpf_sock *ctx)
{
	__u32 port = ctx->src_port, proto = ctx->protocol;

	if (!is_host_port(port, proto, bpf_get_netns_cookie(ctx)))
		return 1;
	return record_port(port, proto);
}

/*
 * Sets the port again. The lists that Go scans do not contain TCP sockets that are only bound, so
 * Go may have cleared it since. For a socket without a port, the kernel will choose one, but never
 * from the SNAT range, because the agent reserves that.
 */
static __always_inline int before_connect(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	__u32 port = sk ? sk->src_port : 0;

	if (!port || !is_host_port(port, ctx->protocol, bpf_get_netns_cookie(ctx)))
		return 1;
	return record_port(port, ctx->protocol);
}

SEC("cgroup/post_bind4")
int gate_post_bind4(struct bpf_sock *ctx)
{
	return is_loopback(ctx->src_ip4) ? 1 : after_bind(ctx);
}

/* A socket at ::1 is recorded, too. Until the next scan, it costs a lookup for each packet to its
 * port. */
SEC("cgroup/post_bind6")
int gate_post_bind6(struct bpf_sock *ctx)
{
	return after_bind(ctx);
}

SEC("cgroup/connect4")
int gate_connect4(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return sk && is_loopback(sk->src_ip4) ? 1 : before_connect(ctx);
}

SEC("cgroup/connect6")
int gate_connect6(struct bpf_sock_addr *ctx)
{
	return before_connect(ctx);
}

/* The same protocols as withPorts in agent/link/raw.go: other rules cover ICMP and protocols with
 * ports. */
static __always_inline int needs_host_protos(__u32 proto)
{
	switch (proto) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_SCTP:
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return 0;
	}
	return 1;
}

/*
 * Adds the protocol of a raw socket with any peer, because the socket is not connected yet. Go's
 * next scan replaces the entry by one with the peer.
 */
SEC("cgroup/sock_create")
int gate_sock_create(struct bpf_sock *ctx)
{
	struct ns_key k = { .proto = ctx->protocol };
	__u8 one = 1;

	if (ctx->type != SOCK_RAW || !needs_host_protos(ctx->protocol) ||
	    bpf_get_netns_cookie(ctx) != host_netns)
		return 1;

	/* any peer is :: or, for IPv4, ::ffff:0.0.0.0 */
	if (ctx->family == AF_INET)
		k.remote.w[2] = bpf_htonl(0xffff);
	else if (ctx->family != AF_INET6)
		return 1;
	bpf_map_update_elem(&host_protos, &k, &one, BPF_ANY);
	return 1;
}
