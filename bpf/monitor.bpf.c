// clang-format off
//go:build ignore

/* clang-format on */
// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * Samples live decisions. While a monitor is open, these programs are attached before those of the
 * gateway. They apply the same rules to the same tables, without counting, learning or sending.
 * Every packet continues to the deciding program. Without a monitor they are not attached.
 */
#define DRY_RUN 1
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "types.h"
#include "maps.h"
#include "verdict.h"
#include "out.h"
#include "quick.h"

char _license[] SEC("license") = "GPL";

#define SNAP 192
#define SECOND 1000000000ULL

enum side {
	SIDE_WIRE,
	SIDE_OVN,
	SIDE_HOST,
};

struct sample {
	__u64 ns; /* CLOCK_MONOTONIC */
	__u32 reason;
	__u32 len; /* of the complete frame, without a removed tag */
	__u32 captured;
	__u32 tag; /* protocol and TCI of that tag in host order, 0: none */
	__u32 l3;  /* bytes after the Ethernet header; of a GSO packet those of a segment */
	__u8 side;
	__u8 pad[3];
	__u8 frame[SNAP];
};
_Static_assert(sizeof(struct sample) == 224, "sample is shared with Go");

struct look_for {
	__u64 reasons[2]; /* one bit per reason */
	struct addr addr; /* of source or destination, masked */
	struct addr mask;
	__u32 rate;	/* samples per second */
	__be16 port;	/* 0: any */
	__u8 proto;	/* 0: any */
	__u8 by_packet; /* filter by addr, port or proto */
};
_Static_assert(sizeof(struct look_for) == 56, "look_for is shared with Go");
_Static_assert(REASON_MAX <= 128, "a bit for each reason");

const volatile struct look_for filter;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

/* Samples in this second, and the total number of packets left out. */
__u64 second SEC(".data.rate");
__u64 taken SEC(".data.rate");
__u64 missed SEC(".data.rate");

const struct sample *unused_sample __attribute__((unused));
const enum reason *unused_reason __attribute__((unused));

static __always_inline int under_mask(const struct addr *a)
{
	for (int i = 0; i < 4; i++)
		if ((a->w[i] & filter.mask.w[i]) != filter.addr.w[i])
			return 0;
	return 1;
}

static __always_inline int wanted(struct __sk_buff *skb)
{
	struct packet p = {};

	if (!filter.by_packet)
		return 1;

	if (parse(skb, ETH_HLEN, &p, skb->protocol))
		return 0;
	if (filter.proto && p.proto != filter.proto)
		return 0;
	if (filter.port && p.sport != filter.port && p.dport != filter.port)
		return 0;
	return under_mask(&p.src) || under_mask(&p.dst);
}

static __always_inline int within_rate(__u64 now)
{
	if (now - second >= SECOND) {
		second = now;
		taken = 0;
	}
	if (__sync_fetch_and_add(&taken, 1) < filter.rate)
		return 1;
	__sync_fetch_and_add(&missed, 1);
	return 0;
}

static __always_inline int look(struct __sk_buff *skb, __u8 side, __u32 reason)
{
	struct sample *s;
	__u32 n = skb->len;
	__u64 now;

	if (!(filter.reasons[(reason >> 6) & 1] >> (reason & 63) & 1) || !wanted(skb))
		return TC_ACT_UNSPEC;
	now = bpf_ktime_get_ns();
	if (!within_rate(now))
		return TC_ACT_UNSPEC;

	s = bpf_ringbuf_reserve(&samples, sizeof(*s), 0);
	if (!s) {
		__sync_fetch_and_add(&missed, 1);
		return TC_ACT_UNSPEC;
	}

	s->ns = now;
	s->reason = reason;
	s->len = n;
	s->side = side;
	s->l3 = l3_len(skb);
	s->tag = skb->vlan_present ? bpf_ntohs(skb->vlan_proto) << 16 | (__u16)skb->vlan_tci : 0;

	/* the verifier must see both bounds in the register that is used */
	asm volatile("" : "+r"(n));
	if (n > SNAP)
		n = SNAP;
	s->captured = 0;
	if (n > 0 && !bpf_skb_load_bytes(skb, 0, s->frame, n))
		s->captured = n;

	bpf_ringbuf_submit(s, 0);
	return TC_ACT_UNSPEC;
}

/* Same as the deciding programs: the short path if it is certain, otherwise the full one. */
static __always_inline __u32 ovn_reason(struct __sk_buff *skb)
{
	int quick = quick_from_ovn(skb);

	return settled_ovn(quick != UNSURE ? (__u32)quick : bounded_reason(from_ovn(skb)));
}

SEC("tc")
int monitor_wire(struct __sk_buff *skb)
{
	int quick = quick_from_wire(skb, 1);
	__u32 reason = quick != UNSURE ? (__u32)quick : bounded_reason(from_wire(skb));

	return look(skb, SIDE_WIRE, settled_wire(reason));
}

SEC("tc")
int monitor_ovn(struct __sk_buff *skb)
{
	return look(skb, SIDE_OVN, ovn_reason(skb));
}

/* Uplink egress in layout bridged. */
SEC("tc")
int monitor_out(struct __sk_buff *skb)
{
	if (skb->tc_index == TC_HOST)
		return TC_ACT_UNSPEC; /* seen where the host sent it */
	if (skb->mark == MARK_HOST)
		return look(skb, SIDE_HOST, REASON_HOST_OUT);
	return look(skb, SIDE_OVN, ovn_reason(skb));
}

SEC("tc")
int monitor_host(struct __sk_buff *skb)
{
	int quick = quick_from_host(skb);

	return look(skb, SIDE_HOST,
		    quick != UNSURE ? (__u32)quick : bounded_reason(from_host(skb)));
}
