/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* Later fragments have no ports: they follow the first fragment. */
#ifndef __FRAGMENT_H
#define __FRAGMENT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "parse.h"
#include "state.h"

/* Decides a later fragment: to the receiver of the first one, if that was seen recently. */
static __noinline int later_fragment(const struct packet *p)
{
	struct frag_key k;
	struct frag_seen *s;
	__u32 kind;

	frag_key(&k, p);
	s = bpf_map_lookup_elem(&frags, &k);
	note(ASKED_FRAGMENT, s ? 1 + s->owner : 0, &p->src, 0, p->proto, (struct seen *)s);

	if (s && s->owner != FRAG_BOTH && bpf_ktime_get_ns() - s->ns < FRAG_TIMEOUT) {
		if (s->owner == FRAG_DROPPED)
			return REASON_CLUSTER_DESTINATION;
		return s->owner == FRAG_OVN ? REASON_FRAGMENT_OVN : REASON_FRAGMENT;
	}

	kind = kind_of(&p->dst);
	/* both sides get it, and the side without the first fragment discards it after a timeout */
	return kind == ADDR_HOST || kind == ADDR_VIP ? REASON_FRAGMENT_EARLY : REASON_NOT_OURS;
}

static __always_inline __u8 frag_owner(int reason)
{
	if (wire_to_host(reason))
		return FRAG_HOST;
	if (wire_dropped(reason))
		return FRAG_DROPPED;
	return wire_to_ovn(reason) ? FRAG_OVN : FRAG_BOTH;
}

/* Remembers the receiver of a first fragment, for the later ones. Returns its reason. */
static __noinline int first_fragment(const struct packet *p, int reason)
{
	struct frag_seen now = { .ns = bpf_ktime_get_ns(), .owner = frag_owner(reason) };
	struct frag_key k;

	frag_key(&k, p);
	note(WOULD_REMEMBER, 1 + now.owner, &p->src, 0, p->proto, NULL);
	if (!DRY_RUN)
		bpf_map_update_elem(&frags, &k, &now, BPF_ANY);
	return reason;
}

#endif /* __FRAGMENT_H */
