/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The host's sockets inside the SNAT range, and its connections at frontends. */
#ifndef __SOCKET_H
#define __SOCKET_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"

/*
 * Reports whether this segment may complete a handshake for which the host only keeps a SYN cookie.
 */
static __noinline int has_cookie(struct __sk_buff *skb, const struct packet *p, struct bpf_sock *sk)
{
	struct ipv6hdr ip; /* or IPv4's */
	struct tcphdr tcp;
	__u32 len = p->v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (bpf_skb_load_bytes(skb, p->l4, &tcp, sizeof(tcp)))
		return 0;
	if (p->v6 ? bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(ip))
		  : bpf_skb_load_bytes(skb, ETH_HLEN, &ip, sizeof(struct iphdr)))
		return 0;
	return !bpf_tcp_check_syncookie(sk, &ip, len, &tcp, sizeof(tcp));
}

/*
 * Reports whether a TCP socket owns the packet. A listener owns only the ACK that answers its SYN
 * cookie, and never a quoted packet.
 */
static __always_inline int lookup_tcp(struct __sk_buff *skb, const struct packet *p,
				      struct bpf_sock_tuple *t, __u32 len, int quoted)
{
	struct bpf_sock *sk;
	int owns;

	sk = bpf_skc_lookup_tcp(skb, t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;

	if (sk->state != BPF_TCP_LISTEN)
		owns = 1;
	else
		owns = !quoted && has_cookie(skb, p, sk);
	bpf_sk_release(sk);
	return owns;
}

/* Reports whether a UDP socket owns the packet. */
static __always_inline int lookup_udp(struct __sk_buff *skb, struct bpf_sock_tuple *t, __u32 len)
{
	struct bpf_sock *sk;

	sk = bpf_sk_lookup_udp(skb, t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

/* Reports whether a host socket may use p->dport. Only then a lookup is needed. */
static __always_inline int is_gated(const struct packet *p)
{
	struct port_bits *gate;
	__u32 zero = 0;

	gate = bpf_map_lookup_elem(&host_sockets, &zero);
	if (!gate || (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP))
		return 0;
	return test_port(p->proto == IPPROTO_TCP ? gate->tcp : gate->udp, bpf_ntohs(p->dport));
}

/*
 * Reports whether a host socket owns p->dport. quoted: p is from the quote of an ICMP error. Not
 * static: the verifier of Linux 7.3 overlooks what a static function reads on the stack of its
 * caller's caller, takes it for dead, and then refuses the read ("slot poisoned by dead code
 * elimination").
 */
__noinline int host_socket(struct __sk_buff *skb, const struct packet *p, int quoted)
{
	struct bpf_sock_tuple t = {};
	__u32 len;

	if (!p)
		return 0;
	len = socket_tuple(&t, p);
	if (p->proto == IPPROTO_TCP)
		return lookup_tcp(skb, p, &t, len, quoted);
	return lookup_udp(skb, &t, len);
}

/*
 * Reports whether p is from the peer of a connected host socket: TCP also in setup, and in
 * TIME_WAIT unless p begins a connection.
 */
static __always_inline int host_connection(struct __sk_buff *skb, const struct packet *p,
					   int begins)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	__u32 len;
	int has;

	len = socket_tuple(&t, p);
	if (p->proto == IPPROTO_TCP) {
		sk = bpf_skc_lookup_tcp(skb, &t, len, BPF_F_CURRENT_NETNS, 0);
		if (!sk)
			return 0;
		has = sk->state != BPF_TCP_LISTEN && !(begins && sk->state == BPF_TCP_TIME_WAIT);
	} else {
		sk = bpf_sk_lookup_udp(skb, &t, len, BPF_F_CURRENT_NETNS, 0);
		if (!sk)
			return 0;
		has = sk->state == BPF_TCP_ESTABLISHED;
	}

	bpf_sk_release(sk);
	return has;
}

#endif /* __SOCKET_H */
