/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The owner of a packet with ports: see port_owner(). */
#ifndef __PORT_H
#define __PORT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "parse.h"
#include "socket.h"
#include "state.h"

#define TCP_FLAGS_OFFSET 13
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define BFD_PORT 3784 /* single hop, RFC 5881 */

/* The same as service_owner(), without a note. The digest saves most lookups. */
static __always_inline __u32 find_service(const struct packet *p)
{
	struct service_key k = {};
	__u8 *owner;

	if (!test_port(special_ports, bpf_ntohs(p->dport)))
		return 0;
	k.addr = p->dst;
	k.port = p->dport;
	k.proto = p->proto;
	owner = bpf_map_lookup_elem(&services, &k);
	return owner ? *owner : 0;
}

/* Returns the owner of the frontend that p is addressed to; 0: not a frontend. */
static __always_inline __u32 service_owner(const struct packet *p)
{
	__u32 owner = find_service(p);

	note(ASKED_SERVICE, owner, &p->dst, p->dport, p->proto, NULL);
	return owner;
}

/* Reports whether the packet opens a TCP connection: of these four flags, it has only SYN. */
static __always_inline int is_pure_syn(struct __sk_buff *skb, const struct packet *p)
{
	__u8 flags;

	if (p->proto != IPPROTO_TCP || bpf_skb_load_bytes(skb, p->l4 + TCP_FLAGS_OFFSET, &flags, 1))
		return 0;
	return (flags & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK)) == TCP_SYN;
}

/* Reports whether the packet is for a tunnel, by protocol and destination port. */
static __always_inline int is_geneve(const struct packet *p)
{
	return p->frag != FRAG_LATER && is_geneve_port(p->proto, p->dport);
}

static __always_inline int is_bfd(const struct packet *p)
{
	return cfg.bfd && p->proto == IPPROTO_UDP && p->frag == FRAG_NONE &&
	       p->dport == bpf_htons(BFD_PORT);
}

/* Decides packets to the SNAT range. begins: the packet opens a connection. */
static __always_inline int range_owner(struct __sk_buff *skb, const struct packet *p, int begins,
				       int quoted)
{
	int owns;

	if (begins)
		return REASON_SNAT_SYN;

	if (!is_gated(p)) {
		note(ASKED_GATE, 0, &p->dst, p->dport, p->proto, NULL);
		return REASON_SNAT_PORT;
	}
	note(ASKED_GATE, 1, &p->dst, p->dport, p->proto, NULL);
	owns = host_socket(skb, p, quoted);
	note(ASKED_SOCKET, owns, &p->dst, p->dport, p->proto, NULL);
	return owns ? REASON_HOST_SOCKET : REASON_SNAT_PORT;
}

/*
 * Reports whether a packet to a frontend belongs to a connection of the host. The host takes
 * precedence, because a Service may get its frontend while the host has connections from or to that
 * port. Not inline: with its frame in port_owner(), the stacks of seven calls would exceed the 512
 * bytes of Linux 6.1. Not static: see host_socket().
 */
__noinline int is_of_host(struct __sk_buff *skb, const struct packet *p, int quoted)
{
	struct addr dst; /* see is_internal() */
	int has;

	if (!p)
		return 0;
	dst = p->dst;
	if ((p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP) || !is_host(&dst))
		return 0;

	has = host_connection(skb, p, !quoted && is_pure_syn(skb, p));
	note(ASKED_SOCKET, has, &dst, p->dport, p->proto, NULL);
	return has;
}

/*
 * Decides by the local port: first frontends of Services, then OVN's own ports, which are the SNAT
 * range and the connections in takeover. quoted: p is the reversed quote of an ICMP error. Then it
 * opens no connection, because its flags are those of the quoted packet.
 */
static __noinline int port_owner(struct __sk_buff *skb, const struct packet *p, int quoted)
{
	__u32 owner = service_owner(p);
	int begins;

	if (owner && cfg.local)
		return REASON_SERVICE_LOCAL;
	if (owner == SERVICE_OVN && is_of_host(skb, p, quoted))
		return REASON_HOST_CONNECTION;
	if (owner)
		return owner == SERVICE_HOST ? REASON_SERVICE_HOST : REASON_SERVICE;

	if (is_node(&p->dst) && !cfg.local) {
		begins = !quoted && is_pure_syn(skb, p);
		note(ASKED_RANGE, in_snat_range(bpf_ntohs(p->dport)), &p->dst, p->dport, p->proto,
		     NULL);
		if (in_snat_range(bpf_ntohs(p->dport)))
			return range_owner(skb, p, begins, quoted);
		if (!begins && in_takeover(p))
			return REASON_TAKEOVER;
	}

	if (!is_host(&p->dst))
		return REASON_NOT_OURS;
	return !quoted && is_bfd(p) ? REASON_BFD : REASON_DEFAULT;
}

/* Reports whether the host itself uses this protocol with p->src, or with any peer. */
static __noinline int is_host_proto(const struct packet *p)
{
	struct ns_key k;
	int uses;

	if (!is_node(&p->dst))
		return 0;

	ns_key(&k, p);
	uses = bpf_map_lookup_elem(&host_protos, &k) != NULL;
	if (!uses) {
		__builtin_memset(&k.remote, 0, sizeof(k.remote));
		if (!p->v6)
			map4(&k.remote, 0);
		uses = bpf_map_lookup_elem(&host_protos, &k) != NULL;
	}

	note(ASKED_PROTOCOL, uses, &p->src, 0, p->proto, NULL);
	return uses;
}

#endif /* __PORT_H */
