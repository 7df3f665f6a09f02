// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * The gate of the host's sockets. When a socket binds, and again when it connects, the gate makes
 * the gateway's programs look up the owner of its port. When a raw socket is created, its protocol
 * becomes the host's.
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

const volatile __u64 host_netns = 0;
__u32 period = 0; /* its lowest bit selects the half of gate_recent that is written */

/* Ports that were bound in this period and in the previous one. */
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

	asm volatile("%0 &= 0xffff" : "+r"(port));
	__sync_fetch_and_or(&words[port >> 6], 1ull << (port & 63));
}

static __always_inline int open_gate(__u32 port, __u32 proto)
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

static __always_inline int is_ours(__u32 port, __u32 proto, __u64 netns)
{
	return port && (proto == IPPROTO_TCP || proto == IPPROTO_UDP) && netns == host_netns;
}

/* Packets from outside cannot reach a loopback address. */
static __always_inline int is_loopback(__u32 ip4)
{
	return (ip4 & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000);
}

static __always_inline int bound(struct bpf_sock *ctx)
{
	__u32 port = ctx->src_port, proto = ctx->protocol;

	if (!is_ours(port, proto, bpf_get_netns_cookie(ctx)))
		return 1;
	return open_gate(port, proto);
}

/*
 * The lists that Go scans do not contain TCP sockets that are only bound, so a socket's bit may be
 * cleared before it connects. If a socket has no port, the kernel chooses one outside the reserved
 * ports.
 */
static __always_inline int connects(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	__u32 port = sk ? sk->src_port : 0;

	if (!port || !is_ours(port, ctx->protocol, bpf_get_netns_cookie(ctx)))
		return 1;
	return open_gate(port, ctx->protocol);
}

SEC("cgroup/post_bind4")
int gate_post_bind4(struct bpf_sock *ctx)
{
	return is_loopback(ctx->src_ip4) ? 1 : bound(ctx);
}

SEC("cgroup/post_bind6")
int gate_post_bind6(struct bpf_sock *ctx)
{
	return bound(ctx);
}

SEC("cgroup/connect4")
int gate_connect4(struct bpf_sock_addr *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return sk && is_loopback(sk->src_ip4) ? 1 : connects(ctx);
}

SEC("cgroup/connect6")
int gate_connect6(struct bpf_sock_addr *ctx)
{
	return connects(ctx);
}

/* Same as HostProtos in agent/link: other rules cover ICMP and protocols with ports. */
static __always_inline int is_claim(__u32 proto)
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

/* Claims the protocol for any peer, because the socket is not connected yet. A scan narrows it. */
SEC("cgroup/sock_create")
int gate_sock_create(struct bpf_sock *ctx)
{
	struct ns_key k = { .proto = ctx->protocol };
	__u8 one = 1;

	if (ctx->type != SOCK_RAW || !is_claim(ctx->protocol) ||
	    bpf_get_netns_cookie(ctx) != host_netns)
		return 1;

	if (ctx->family == AF_INET)
		k.remote.w[2] = bpf_htonl(0xffff);
	else if (ctx->family != AF_INET6)
		return 1;
	bpf_map_update_elem(&host_protos, &k, &one, BPF_ANY);
	return 1;
}
