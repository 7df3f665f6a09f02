/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * Sends packets past OVS by their shortcuts, in both directions: shortcut_in() from the wire to a
 * pod, from_pod() from a pod to the wire. send_past() is also for packets of the host.
 */
#ifndef __PAST_H
#define __PAST_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "count.h"
#include "learn.h"
#include "maps.h"
#include "plain.h"
#include "prefix.h"
#include "rewrite.h"
#include "short.h"

/*
 * In layout bridged, sends a packet past OVS to the uplink. The uplink's egress program recognizes
 * it by mark, and restores the packet's own mark, because the host's filters may use that.
 */
static __always_inline int send_past(struct __sk_buff *skb, __u32 mark)
{
	skb->cb[0] = skb->mark;
	skb->mark = mark;
	return bpf_redirect(cfg.uplink, 0);
}

/*
 * Reports, at the uplink's egress, whether send_past() has sent the packet, so that another program
 * has already decided and counted it. If so, restores the packet's own mark.
 */
static __always_inline int was_sent_past(struct __sk_buff *skb)
{
	if (skb->mark != MARK_HOST_SENT && (!shortcuts_on || skb->mark != MARK_POD_SENT))
		return 0;
	skb->mark = skb->cb[0]; /* a redirect keeps it */
	return 1;
}

/*
 * Applies the shortcut of a packet from the wire for OVN. Returns the pod's device, or 0 if
 * the packet must go to OVS. Not inline: the stack of the programs' longest call chain is full.
 */
static __noinline int shortcut_in(struct __sk_buff *skb, __u32 reason)
{
	struct shortcut *s;
	struct plain p;
	struct tuple t;
	struct pod_cell *received;
	__u32 device, number;

	if (!plain(skb, &p, &t, ORIGIN_WIRE))
		return 0;
	s = find_shortcut(&t, p.v6);
	if (!s)
		return 0;

	if (p.flags & TCP_ENDS) {
		s->until = 0;
		return 0;
	}

	/* the packet enters OVS, so the pod's next packet may renew the entry */
	if (p.flags & TCP_SYN || !is_valid(s, bpf_ktime_get_coarse_ns())) {
		s->seen = seen_in(current_epoch());
		return 0;
	}

	if (p.hops <= s->hops || ip_len(skb, &p) > s->longest)
		return 0;

	s->used = 1;
	device = s->device;
	number = s->number;
	received = bpf_map_lookup_elem(&pod_received, &number);
	if (!received || received->device != device) /* the pod is gone */
		return 0;

	count(skb, reason == REASON_SERVICE ? REASON_SERVICE_CACHED : REASON_SNAT_CACHED);
	if (reason == REASON_SERVICE)
		count_service(skb);
	add(skb, &received->cell);

	skb->mark = 0; /* as on the way through OVS and the pod's device */
	rewrite(skb, &p, s);
	return device;
}

/*
 * Reports whether the address is a pod's or a Service's. OVS sends such a packet elsewhere, or
 * often changes its decision.
 */
static __always_inline int is_inside(const struct addr *dst, int v6)
{
	if (v6)
		return in_prefixes6(dst, cfg.pod6, cfg.pod6_count) ||
		       in_prefixes6(dst, cfg.svc6, cfg.svc6_count);
	return in_prefixes4(dst->w[3], cfg.pod4, cfg.pod4_count) ||
	       in_prefixes4(dst->w[3], cfg.svc4, cfg.svc4_count);
}

/*
 * Returns 0 if the address is certainly neither, by the digest of internal networks: see
 * may_be_internal4().
 */
static __always_inline int may_be_inside(const struct addr *dst, int v6)
{
	return v6 ? may_be_internal6(dst->w[0], dst->w[1]) : may_be_internal4(dst->w[3]);
}

/* Reports whether a host socket may use the port that the packet gets: see learn() in out.h. */
static __always_inline int may_be_host_port(const struct plain *p, const struct shortcut *s)
{
	struct port_bits *gate;
	__u32 zero = 0;

	if (p->proto != IPPROTO_UDP)
		return 0;
	gate = bpf_map_lookup_elem(&host_sockets, &zero);
	return !gate || test_port(gate->udp, bpf_ntohs(s->sport));
}

/* A closed connection's packets that are not observed: usually the last one of each direction. */
#define LAST_PACKETS 3

/*
 * Handles the end of a connection by the pod: both directions go through OVS from now on. The few
 * packets that still follow are not worth observing. If many follow, only one direction is closed,
 * and the connection is observed again.
 */
static __noinline int end_connection(struct shortcut *s, __u32 proto, int v6)
{
	struct tuple wire = {};
	struct shortcut *other;

	s->until = 0;
	s->seen = 1;

	wire.src = s->dst;
	wire.dst = s->src;
	wire.sport = s->dport;
	wire.dport = s->sport;
	wire.proto = proto;
	wire.origin = ORIGIN_WIRE;

	other = find_shortcut(&wire, v6);
	if (other && other->device == s->device) {
		other->until = 0;
		other->seen = 0;
	}
	return 0;
}

/*
 * Remembers a packet that goes through OVS, if it can show how OVS translates its connection.
 * Connections inside the cluster are never observed, so they have no shortcut. If the cluster's
 * networks change, the epoch changes, too. s is the packet's entry, or NULL.
 */
static __noinline int observe(struct __sk_buff *skb, struct shortcut *s, const struct plain *p,
			      const struct tuple *t, __u64 now)
{
	if (s && s->seen && s->seen <= LAST_PACKETS) {
		s->seen++;
		return 0;
	}

	if (s ? !is_worth_a_try(&s->tries) : p->proto == IPPROTO_UDP && !may_be_answered(t, now))
		return 0;

	/* a packet to the host never leaves by the uplink, and would hold its slot */
	if (!is_inside(&t->dst, p->v6) && !is_host(&t->dst))
		enters_ovs(skb, p, t, now, s && is_valid(s, now));
	return 0;
}

/*
 * Handles a pod's packet, at the host's end of its device. With a valid shortcut, the packet goes
 * past OVS to the uplink. mark is for a program at the uplink's egress, which lets packets with
 * this mark pass: see send_past(). Layout direct has no program there, and mark is 0.
 */
static __always_inline int from_pod(struct __sk_buff *skb, __u32 mark)
{
	struct shortcut *s;
	struct plain p;
	struct tuple t;
	__u64 now;

	/* a program or a filter in the pod may have set it; OVS would carry it to the uplink */
	if (skb->tc_index)
		skb->tc_index = 0;

	/* a tag that the pod has set would stay on the packet */
	if (skb->vlan_present || !connected() || !plain(skb, &p, &t, ORIGIN_POD))
		return TC_ACT_UNSPEC;
	/* each tunnel packet of a pod is checked where it leaves OVS */
	if (is_geneve_port(p.proto, t.dport))
		return TC_ACT_UNSPEC;
	/* most of a pod's packets may be to other pods, and need no search in the table */
	if (may_be_inside(&t.dst, p.v6) && is_inside(&t.dst, p.v6))
		return TC_ACT_UNSPEC;

	now = bpf_ktime_get_coarse_ns();
	s = find_shortcut(&t, p.v6);
	if (s && s->device != skb->ifindex)
		s = NULL;

	if (s && p.flags & TCP_ENDS) {
		end_connection(s, p.proto, p.v6);
		return TC_ACT_UNSPEC;
	}
	if (s && p.flags & TCP_SYN) {
		s->until = 0;
		s->seen = 0;
	}

	if (!s || !is_valid(s, now) || ip_len(skb, &p) > s->longest) {
		/* the verifier of Linux 6.1 forgets the fields of p once its address is passed */
		struct plain seen = p;

		observe(skb, s, &seen, &t, now);
		return TC_ACT_UNSPEC;
	}
	/* OVS, or a rule for packets that leave OVS, may drop such a packet */
	if (p.hops <= s->hops || !is_mac(s->from, p.eth + ETH_ALEN) || may_be_host_port(&p, s))
		return TC_ACT_UNSPEC;

	s->tries = 0;
	count(skb, REASON_OUT_CACHED);
	rewrite(skb, &p, s);
	return mark ? send_past(skb, mark) : (int)bpf_redirect(cfg.uplink, 0);
}

#endif /* __PAST_H */
