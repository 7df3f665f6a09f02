/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* What of OVN's packets may leave the node, and what of them is learned. */
#ifndef __OUT_H
#define __OUT_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

#include "maps.h"
#include "parse.h"
#include "verdict.h"

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

static __always_inline int guard4(__be32 src, __be32 dst)
{
	if (in_prefixes4(dst, cfg.svc4, cfg.svc4_count))
		return REASON_SVC_LEAK;
	if (in_prefixes4(src, cfg.pod4, cfg.pod4_count))
		return REASON_UNSNATED;
	return REASON_OUT;
}

static __always_inline int guard6(const struct addr *src, const struct addr *dst)
{
	if (in_prefixes6(dst, cfg.svc6, cfg.svc6_count))
		return REASON_SVC_LEAK;
	if (in_prefixes6(src, cfg.pod6, cfg.pod6_count))
		return REASON_UNSNATED;
	return REASON_OUT;
}

static __always_inline int is_encap(const struct packet *p)
{
	return cfg.has_encap && p->frag != FRAG_LATER && p->proto == IPPROTO_UDP &&
	       bpf_ntohs(p->dport) == cfg.geneve_port && addr_eq(&p->src, &cfg.encap);
}

static __noinline int encap_arp(struct __sk_buff *skb)
{
	struct arp_packet a;
	struct addr spa;

	if (!cfg.has_encap || bpf_skb_load_bytes(skb, ETH_HLEN, &a, sizeof(a)))
		return 0;
	map4(&spa, a.spa);
	return addr_eq(&spa, &cfg.encap);
}

/* Remembers what has no local port to tell its answers by. */
static __noinline int learn(const struct packet *p)
{
	struct seen now = { .ns = bpf_ktime_get_ns() };
	struct packet reply = *p;
	struct ns_key k;
	struct seen *s;

	if (has_ports(p->proto) || !is_node(&p->src))
		return REASON_OUT;
	if (is_icmp(p) && (p->frag == FRAG_LATER || !is_echo_request(p)))
		return REASON_OUT;
	reverse(&reply);
	ns_key(&k, &reply);
	s = bpf_map_lookup_elem(&ns, &k);
	if (s)
		s->ns = now.ns;
	else
		bpf_map_update_elem(&ns, &k, &now, BPF_ANY);
	return REASON_OUT_LEARNED;
}

/* Everything that OVN sends, in full. Not static: see parse(). */
__noinline int from_ovn(struct __sk_buff *skb)
{
	int is4 = skb->protocol == bpf_htons(ETH_P_IP);
	int is6 = skb->protocol == bpf_htons(ETH_P_IPV6);
	struct packet p = {};
	__u64 source = 0;
	int parsed, reason;

	if (bpf_skb_load_bytes(skb, ETH_ALEN, &source, ETH_ALEN))
		return REASON_BAD_MAC;
	parsed = (is4 || is6) && !parse(skb, ETH_HLEN, &p, skb->protocol);
	if (parsed && is_encap(&p))
		return REASON_ENCAP_OUT;
	if (skb->protocol == bpf_htons(ETH_P_ARP) && encap_arp(skb))
		return REASON_ENCAP_OUT;
	if (source != cfg.node_mac)
		return REASON_BAD_MAC;
	if (skb->protocol == bpf_htons(ETH_P_ARP) || (parsed && is_nd(&p)))
		return REASON_NEIGHBOUR_OUT;
	if (!is4 && !is6)
		return REASON_OUT;
	/* what leaks is dropped, whatever else is wrong with it */
	reason = is4 ? guard4(p.src.w[3], p.dst.w[3]) : guard6(&p.src, &p.dst);
	return parsed && reason == REASON_OUT ? learn(&p) : reason;
}

#endif /* __OUT_H */
