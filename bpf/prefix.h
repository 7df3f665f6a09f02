/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/* The address ranges of the configuration. */
#ifndef __PREFIX_H
#define __PREFIX_H

#include <bpf/bpf_helpers.h>

#include "maps.h"

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

/* Is it a pod of this node, known outside by its own address? */
static __always_inline int is_routable(__u8 v6, const struct addr *a)
{
	return v6 ? in_prefixes6(a, cfg.routable6, cfg.routable6_count)
		  : in_prefixes4(a->w[3], cfg.routable4, cfg.routable4_count);
}

#endif /* __PREFIX_H */
