/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * externalTrafficPolicy=Local with an endpoint on the host's network: packets for the frontend go
 * to the socket that listens on the target port. No address is changed, so the client's address is
 * preserved.
 *
 * This runs at TC ingress, because an sk_lookup program cannot look sockets up. TCP only: an
 * unconnected UDP socket would reply from its own port.
 */
#ifndef __LOOKUP_H
#define __LOOKUP_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "parse.h"

struct lookup_target {
	struct addr addr; /* local address of the socket, or the unspecified address */
	__be16 port;
	__u16 pad;
};
_Static_assert(sizeof(struct lookup_target) == 20, "lookup_target is shared with Go");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct service_key);
	__type(value, struct lookup_target);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} lookup_targets SEC(".maps");

static __always_inline struct bpf_sock *lookup_tuple(struct __sk_buff *skb,
						     struct bpf_sock_tuple *t, int v6)
{
	return bpf_skc_lookup_tcp(skb, t, v6 ? sizeof(t->ipv6) : sizeof(t->ipv4),
				  BPF_F_CURRENT_NETNS, 0);
}

/* Reports whether the packet belongs to a connection, including one in setup or in TIME_WAIT. */
static __noinline int has_connection(struct __sk_buff *skb, const struct packet *p)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	int has;

	socket_tuple(&t, p);
	sk = lookup_tuple(skb, &t, p->v6);
	if (!sk)
		return 0;

	has = sk->state != BPF_TCP_LISTEN;
	bpf_sk_release(sk);
	return has;
}

/*
 * Assigns the packet to the listener of its frontend, if it has one. This applies to a SYN, and
 * to an ACK that answers a SYN cookie. The stack itself finds packets of existing connections,
 * because their sockets have the frontend's address and port.
 */
static __noinline int assign_target(struct __sk_buff *skb, const struct packet *p)
{
	struct service_key key = { .addr = p->dst, .port = p->dport, .proto = p->proto };
	struct lookup_target *target;
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	int ret = -1;

	if (p->proto != IPPROTO_TCP || p->frag != FRAG_NONE)
		return ret;
	target = bpf_map_lookup_elem(&lookup_targets, &key);
	if (!target || has_connection(skb, p))
		return ret;

	/* the source is unspecified, so a connection on the target port itself does not match */
	if (p->v6) {
		__builtin_memcpy(t.ipv6.daddr, &target->addr, sizeof(target->addr));
		t.ipv6.dport = target->port;
	} else {
		t.ipv4.daddr = target->addr.w[3];
		t.ipv4.dport = target->port;
	}

	sk = lookup_tuple(skb, &t, p->v6);
	if (!sk)
		return ret;

	/* Before Linux 6.6 this fails for a socket with SO_REUSEPORT. */
	if (sk->state == BPF_TCP_LISTEN)
		ret = bpf_sk_assign(skb, sk, 0);
	bpf_sk_release(sk);
	return ret;
}

/* The same for callers that have the verdict but no longer the parsed packet. */
static __noinline void assign_socket(struct __sk_buff *skb)
{
	struct packet p = {};

	if (!parse(skb, ETH_HLEN, &p, skb->protocol))
		assign_target(skb, &p);
}

#endif /* __LOOKUP_H */
