/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The full parser, for a packet or for a packet quoted in an ICMP error. It copies headers out, so
 * it works with non-linear data and survives helpers that invalidate packet pointers.
 */
#ifndef __PARSE_H
#define __PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "types.h"

#define IP4_PLAIN 0x45 /* version 4, no options */
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#define IP6_MF 0x0001
#define IP6_OFFSET 0xfff8

#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_SOURCE_QUENCH 4
#define ICMP_REDIRECT 5
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMP_FRAG_NEEDED 4 /* code of unreachable */
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_INFO_FIRST 128
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129
#define ND_ROUTER_SOLICIT 133
#define ND_ROUTER_ADVERT 134
#define ND_NEIGHBOR_SOLICIT 135
#define ND_NEIGHBOR_ADVERT 136
#define ND_REDIRECT 137

#define EXTHDR_HOPOPTS 0
#define EXTHDR_ROUTING 43
#define EXTHDR_FRAGMENT 44
#define EXTHDR_AUTH 51
#define EXTHDR_DSTOPTS 60
#define EXTHDR_MAX 8 /* a packet with more is not for OVN */

enum fragment {
	FRAG_NONE,
	FRAG_FIRST, /* has the transport header */
	FRAG_LATER,
};

/* The fields of an IP packet that the rules use. Those that the packet does not have are zero. */
struct packet {
	struct addr src;
	struct addr dst;
	__u32 l4;      /* offset of the transport header */
	__u32 frag_id; /* of the datagram, in network byte order */
	__be16 sport;  /* TCP, UDP, SCTP */
	__be16 dport;
	__be16 echo_id; /* ICMP */
	__u8 proto;	/* after the extension headers */
	__u8 icmp_type;
	__u8 icmp_code;
	__u8 frag; /* enum fragment */
	__u8 v6;
	__u8 pad;
};

/* The first eight bytes of TCP, UDP or SCTP, of which only the ports are used, or of ICMP. */
struct l4_start {
	union {
		struct {
			__be16 sport;
			__be16 dport;
		};
		struct {
			__u8 type;
			__u8 code;
			__be16 check;
		};
	};
	__be16 echo_id;
	__be16 sequence;
};

/* Reports whether it is ICMP of its IP version. A later fragment may be, too. */
static __always_inline int is_icmp(const struct packet *p)
{
	return p->v6 ? p->proto == IPPROTO_ICMPV6 : p->proto == IPPROTO_ICMP;
}

/* Reports whether it requests shorter packets (RFC 1191, RFC 8201). */
static __always_inline int is_too_big(const struct packet *p)
{
	if (!is_icmp(p) || p->frag == FRAG_LATER)
		return 0;
	if (p->v6)
		return p->icmp_type == ICMPV6_PKT_TOOBIG;
	return p->icmp_type == ICMP_DEST_UNREACH && p->icmp_code == ICMP_FRAG_NEEDED;
}

static __always_inline int has_ports(__u8 proto)
{
	return proto == IPPROTO_TCP || proto == IPPROTO_UDP || proto == IPPROTO_SCTP;
}

/*
 * Reads ports, or the ICMP header. Returns -1 if the packet is too short. Eight bytes are enough,
 * and the minimum that an ICMP error must quote (RFC 792).
 */
static __always_inline int parse_l4(struct __sk_buff *skb, struct packet *p)
{
	struct l4_start h;

	if (p->frag == FRAG_LATER || !(has_ports(p->proto) || is_icmp(p)))
		return 0;
	if (bpf_skb_load_bytes(skb, p->l4, &h, sizeof(h)))
		return -1;

	if (has_ports(p->proto)) {
		p->sport = h.sport;
		p->dport = h.dport;
	} else {
		p->icmp_type = h.type;
		p->icmp_code = h.code;
		p->echo_id = h.echo_id;
	}

	return 0;
}

/* Stores an IPv4 address as struct addr. */
static __always_inline void map4(struct addr *a, __be32 ip)
{
	a->w[0] = 0;
	a->w[1] = 0;
	a->w[2] = bpf_htonl(0xffff);
	a->w[3] = ip;
}

/*
 * Reports whether a is an IPv4-mapped address of an IPv6 packet. No host has such an address, but
 * the tables store IPv4 addresses in this format, so it must not match an IPv4 entry.
 */
static __always_inline int is_mapped(const struct packet *p, const struct addr *a)
{
	return p->v6 && !a->w[0] && !a->w[1] && a->w[2] == bpf_htonl(0xffff);
}

static __always_inline int parse_ip4(struct __sk_buff *skb, __u32 off, struct packet *p)
{
	struct iphdr ip;
	__u16 frag;

	if (bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)))
		return -1;

	/* before the next check, because callers read a malformed packet's addresses */
	map4(&p->src, ip.saddr);
	map4(&p->dst, ip.daddr);
	if (ip.version != 4 || ip.ihl < 5)
		return -1;

	p->proto = ip.protocol;
	p->l4 = off + ip.ihl * 4;
	frag = bpf_ntohs(ip.frag_off);
	if (frag & IP_OFFSET)
		p->frag = FRAG_LATER;
	else if (frag & IP_MF)
		p->frag = FRAG_FIRST;
	p->frag_id = ip.id;
	return parse_l4(skb, p);
}

/*
 * Skips the extension headers. Sets p->proto to the upper protocol, or to the next header of a
 * later fragment.
 */
static __always_inline int walk_ext(struct __sk_buff *skb, struct packet *p, __u8 next)
{
	struct {
		__u8 next;
		__u8 len;
		__be16 frag_off;
		__be32 id;
	} h;
	int i;

	for (i = 0; i < EXTHDR_MAX; i++) {
		if (next != EXTHDR_HOPOPTS && next != EXTHDR_ROUTING && next != EXTHDR_DSTOPTS &&
		    next != EXTHDR_AUTH && next != EXTHDR_FRAGMENT) {
			p->proto = next;
			return 0;
		}

		/* the minimum size of extension headers is eight bytes */
		if (bpf_skb_load_bytes(skb, p->l4, &h, sizeof(h)))
			return -1;

		if (next == EXTHDR_FRAGMENT) {
			p->l4 += 8;
			p->frag_id = h.id;
			if (h.frag_off & bpf_htons(IP6_OFFSET)) {
				p->frag = FRAG_LATER;
				p->proto = h.next;
				return 0;
			}

			/* offset 0 without this flag is atomic: a whole packet (RFC 6946) */
			if (h.frag_off & bpf_htons(IP6_MF))
				p->frag = FRAG_FIRST;
		} else if (next == EXTHDR_AUTH) {
			p->l4 += (h.len + 2) * 4;
		} else {
			p->l4 += (h.len + 1) * 8;
		}

		next = h.next;
	}

	return -1;
}

static __always_inline int parse_ip6(struct __sk_buff *skb, __u32 off, struct packet *p)
{
	struct ipv6hdr ip;

	p->v6 = 1;
	if (bpf_skb_load_bytes(skb, off, &ip, sizeof(ip)))
		return -1;

	__builtin_memcpy(&p->src, &ip.saddr, sizeof(p->src));
	__builtin_memcpy(&p->dst, &ip.daddr, sizeof(p->dst));
	if (ip.version != 6)
		return -1;
	p->l4 = off + sizeof(ip);
	if (walk_ext(skb, p, ip.nexthdr))
		return -1;
	return parse_l4(skb, p);
}

/*
 * Parses the IP packet at off into p, which must be zero. Returns 0, or -1 if the packet is
 * malformed. Even then the addresses are set if the fixed header is complete. Not static, because
 * the verifier checks a global function once instead of at each call.
 */
__noinline int parse(struct __sk_buff *skb, __u32 off, struct packet *p, __u32 proto)
{
	if (!p)
		return -1;
	if (proto == bpf_htons(ETH_P_IP))
		return parse_ip4(skb, off, p);
	return parse_ip6(skb, off, p);
}

/* The key of a datagram, by which later fragments find the first one's decision. */
static __always_inline void frag_key(struct frag_key *k, const struct packet *p)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->src = p->src;
	k->dst = p->dst;
	k->id = p->frag_id;
	k->proto = p->v6 ? 0 : p->proto;
}

/* Reverses a quoted packet: dst is then the local side. */
static __always_inline void reverse(struct packet *p)
{
	struct addr a = p->src;
	__be16 port = p->sport;

	p->src = p->dst;
	p->dst = a;
	p->sport = p->dport;
	p->dport = port;
}

/* Fills in the addresses and ports of a packet, for a lookup of its socket. Returns the length. */
static __always_inline __u32 socket_tuple(struct bpf_sock_tuple *t, const struct packet *p)
{
	if (p->v6) {
		__builtin_memcpy(t->ipv6.saddr, &p->src, sizeof(p->src));
		__builtin_memcpy(t->ipv6.daddr, &p->dst, sizeof(p->dst));
		t->ipv6.sport = p->sport;
		t->ipv6.dport = p->dport;
		return sizeof(t->ipv6);
	}

	t->ipv4.saddr = p->src.w[3];
	t->ipv4.daddr = p->dst.w[3];
	t->ipv4.sport = p->sport;
	t->ipv4.dport = p->dport;
	return sizeof(t->ipv4);
}

#endif /* __PARSE_H */
