/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * The owner of ICMP packets. An error belongs to the sender of the packet that it quotes. An echo
 * reply goes to both sides if OVN has sent a request with its identifier, otherwise to the host.
 */
#ifndef __ICMP_H
#define __ICMP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "parse.h"
#include "port.h"
#include "state.h"

static __always_inline int is_icmp_error(const struct packet *p)
{
	if (p->v6)
		return p->icmp_type < ICMPV6_INFO_FIRST;
	return p->icmp_type == ICMP_DEST_UNREACH || p->icmp_type == ICMP_SOURCE_QUENCH ||
	       p->icmp_type == ICMP_REDIRECT || p->icmp_type == ICMP_TIME_EXCEEDED ||
	       p->icmp_type == ICMP_PARAMETERPROB;
}

static __always_inline int is_echo_request(const struct packet *p)
{
	return p->icmp_type == (p->v6 ? ICMPV6_ECHO_REQUEST : ICMP_ECHO);
}

static __always_inline int is_echo_reply(const struct packet *p)
{
	return p->icmp_type == (p->v6 ? ICMPV6_ECHO_REPLY : ICMP_ECHOREPLY);
}

/*
 * Finds the sender of the packet that p, an ICMP error, quotes. Returns the reason that the reply
 * to that packet would have, because the reply goes to the sender. This is REASON_NOT_OURS if the
 * quote cannot be read.
 */
static __noinline int quoted_sender(struct __sk_buff *skb, const struct packet *p)
{
	struct packet q = {};

	if (parse(skb, p->l4 + 8, &q, skb->protocol) || q.frag == FRAG_LATER)
		return REASON_NOT_OURS;
	reverse(&q);
	if (is_mapped(&q, &q.dst))
		return REASON_NOT_OURS;

	if (q.proto == IPPROTO_UDP && bpf_ntohs(q.sport) == cfg.geneve_port)
		/* a tunnel's source port is a hash, even if it is in the SNAT range */
		return cfg.has_encap && addr_eq(&q.dst, &cfg.encap) ? REASON_GENEVE_OVN
								    : REASON_GENEVE;

	if (has_ports(q.proto))
		return port_owner(skb, &q, 1);
	if (!is_icmp(&q) && is_host_proto(&q))
		return REASON_PROTO_HOST;

	if (!is_node(&q.dst) || (is_icmp(&q) && !is_echo_request(&q)) || !in_ns(&q))
		return REASON_NOT_OURS;
	return is_icmp(&q) ? REASON_ICMP_ECHO_REPLY_NS : REASON_PROTO_NS;
}

static __always_inline int icmp_error(struct __sk_buff *skb, const struct packet *p)
{
	int sender = quoted_sender(skb, p);

	if (sender == REASON_ICMP_ECHO_REPLY_NS)
		return REASON_ICMP_ERROR_ECHO; /* the host may use the same identifier */
	if (!wire_to_host(sender))
		return REASON_ICMP_ERROR_OVN;
	if (is_too_big(p) && !cfg.local && sender != REASON_SERVICE_HOST &&
	    kind_of(&p->dst) == ADDR_VIP)
		return REASON_ICMP_VIP;
	return REASON_ICMP_ERROR_HOST;
}

/* Decides ICMP packets other than later fragments and neighbour discovery. */
static __always_inline int icmp_owner(struct __sk_buff *skb, const struct packet *p)
{
	if (is_icmp_error(p))
		return icmp_error(skb, p);
	if (is_echo_reply(p) && is_node(&p->dst))
		return in_ns(p) ? REASON_ICMP_ECHO_REPLY_NS : REASON_ICMP_ECHO_REPLY;

	if (!is_host(&p->dst))
		return REASON_NOT_OURS;
	if (is_echo_request(p))
		return REASON_ICMP_ECHO;
	return is_echo_reply(p) ? REASON_ICMP_ECHO_REPLY : REASON_DEFAULT;
}

#endif /* __ICMP_H */
