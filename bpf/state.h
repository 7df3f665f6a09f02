/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Exchanges that OVN has begun. They identify the replies to OVN. */
#ifndef __STATE_H
#define __STATE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "parse.h"

#define ICMP_TIMEOUT (60 * NSEC_PER_SEC)   /* conntrack uses 30 s */
#define PROTO_TIMEOUT (600 * NSEC_PER_SEC) /* as conntrack's timeout for unknown protocols */

/* The key of an exchange without ports. p->src is the remote side. */
static __always_inline void ns_key(struct ns_key *k, const struct packet *p)
{
	k->remote = p->src;
	k->id = is_icmp(p) ? p->echo_id : 0;
	k->proto = p->proto;
	k->pad = 0;
}

/* Reports whether OVN began this exchange within timeout nanoseconds. */
static __always_inline int seen_in_ns(const struct ns_key *k, __u64 timeout)
{
	struct seen *s = bpf_map_lookup_elem(&ns, k);

	note(ASKED_EXCHANGE, !!s, &k->remote, k->id, k->proto, s);
	return s && bpf_ktime_get_ns() - s->ns < timeout;
}

/*
 * Reports whether OVN recently began the exchange of p. p->src is the remote side. Echo identifiers
 * expire sooner, because other hosts reuse them.
 */
static __always_inline int in_ns(const struct packet *p)
{
	struct ns_key k;

	ns_key(&k, p);
	return seen_in_ns(&k, is_icmp(p) ? ICMP_TIMEOUT : PROTO_TIMEOUT);
}

/* The key of a connection. p->src is the remote side. */
static __always_inline void flow_key(struct flow_key *k, const struct packet *p)
{
	__builtin_memset(k, 0, sizeof(*k));
	k->remote = p->src;
	k->local = p->dst;
	k->remote_port = p->sport;
	k->local_port = p->dport;
	k->proto = p->proto;
}

/*
 * Reports whether the packet is of a connection that OVN had before the takeover. Go detects the
 * connection's end by the entry's age.
 */
static __noinline int in_takeover(const struct packet *p)
{
	struct flow_key k;
	struct seen *s;

	if (!cfg.takeover || !test_port(special_ports, bpf_ntohs(p->dport)))
		return 0;

	flow_key(&k, p);
	s = bpf_map_lookup_elem(&takeover, &k);
	note(ASKED_TAKEOVER, !!s, &p->src, p->sport, p->proto, s);
	if (!s)
		return 0;
	if (!DRY_RUN)
		s->ns = bpf_ktime_get_ns();
	return 1;
}

#endif /* __STATE_H */
