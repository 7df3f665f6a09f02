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

#define SNAP_LEN 192 /* captured bytes of a frame */

/* The origin of a frame: Direction in verdict/model.go. */
enum direction {
	FROM_WIRE,
	FROM_OVN,
	FROM_HOST,
};

/* A decision, as it is sent to Go. On reception, the kernel removes a VLAN tag from the frame. */
struct sample {
	__u64 ns;	/* time of the decision, CLOCK_MONOTONIC */
	__u32 reason;	/* enum reason */
	__u32 len;	/* of the complete frame, without a removed tag */
	__u32 captured; /* bytes in frame, at most SNAP_LEN */
	__u32 tag;	/* removed tag: protocol (upper 16 bits) and TCI, in host order; 0: none */
	__u32 l3_len;	/* bytes after the Ethernet header; of a GSO packet those of one segment */
	__u8 direction; /* enum direction */
	__u8 pad[3];
	__u8 frame[SNAP_LEN];
};
_Static_assert(sizeof(struct sample) == 224, "sample is shared with Go");

/* The decisions to sample. Go sets it before the programs are loaded. */
struct sample_filter {
	__u64 reasons[2];   /* one bit per reason */
	struct addr addr;   /* network of source or destination: (address & mask) == addr */
	struct addr mask;   /* all zero: any address */
	__u32 rate;	    /* largest number of samples per second */
	__be16 port;	    /* of source or destination; 0: any */
	__u8 proto;	    /* 0: any */
	__u8 match_headers; /* addr, port or proto is set, so the packet must be parsed */
};
_Static_assert(sizeof(struct sample_filter) == 56, "sample_filter is shared with Go");
_Static_assert(REASON_MAX <= 128, "a bit for each reason");

const volatile struct sample_filter filter;

/* Samples on their way to Go. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

/* The current second: its start (CLOCK_MONOTONIC), and the packets that pass the filter in it. */
__u64 second_start SEC(".data.rate");
__u64 matches SEC(".data.rate");

/*
 * Packets since the monitor was opened that pass the filter but are not sampled: beyond the rate,
 * or because the ring buffer is full.
 */
__u64 missed SEC(".data.rate");

/* bpf2go needs a variable of each type that it converts to Go. */
const struct sample *unused_sample __attribute__((unused));
const enum reason *unused_reason __attribute__((unused));

/* Reports whether the address is in the filter's network. */
static __always_inline int in_filter_network(const struct addr *a)
{
	for (int i = 0; i < 4; i++)
		if ((a->w[i] & filter.mask.w[i]) != filter.addr.w[i])
			return 0;
	return 1;
}

/* Applies the filter's address, port and protocol. A packet that cannot be parsed matches none. */
static __always_inline int matches_headers(struct __sk_buff *skb)
{
	struct packet p = {};

	if (!filter.match_headers)
		return 1;

	if (parse(skb, ETH_HLEN, &p, skb->protocol))
		return 0;
	if (filter.proto && p.proto != filter.proto)
		return 0;
	if (filter.port && p.sport != filter.port && p.dport != filter.port)
		return 0;
	return in_filter_network(&p.src) || in_filter_network(&p.dst);
}

/*
 * Counts the packet, and reports whether it is within the rate. CPUs race to begin a second,
 * because the two writes are not atomic. Races only make the limit approximate.
 */
static __always_inline int within_rate(__u64 now)
{
	if (now - second_start >= NSEC_PER_SEC) {
		second_start = now;
		matches = 0;
	}
	if (__sync_fetch_and_add(&matches, 1) < filter.rate)
		return 1;
	__sync_fetch_and_add(&missed, 1);
	return 0;
}

/* Sends a sample of the packet to Go if it passes the filter. Always passes the packet on. */
static __always_inline int sample_packet(struct __sk_buff *skb, __u8 direction, __u32 reason)
{
	struct sample *s;
	__u32 n = skb->len;
	__u64 now;

	/* all reasons are below 128: & 1 shows the verifier that the index is in bounds */
	if (!(filter.reasons[(reason >> 6) & 1] >> (reason & 63) & 1) || !matches_headers(skb))
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
	s->direction = direction;
	s->l3_len = l3_len(skb);
	s->tag = skb->vlan_present ? bpf_ntohs(skb->vlan_proto) << 16 | (__u16)skb->vlan_tci : 0;

	/* the verifier must see both bounds in the register that is used */
	asm volatile("" : "+r"(n));
	if (n > SNAP_LEN)
		n = SNAP_LEN;
	s->captured = 0;
	if (n > 0 && !bpf_skb_load_bytes(skb, 0, s->frame, n))
		s->captured = n;

	bpf_ringbuf_submit(s, 0);
	return TC_ACT_UNSPEC;
}

/*
 * The reason of a packet from OVN, as the deciding program finds it: by the short path if this is
 * certain, otherwise by the full one.
 */
static __always_inline __u32 ovn_reason(struct __sk_buff *skb)
{
	int quick = quick_from_ovn(skb);

	return final_ovn_reason(quick != UNSURE ? (__u32)quick : bounded_reason(from_ovn(skb)));
}

/*
 * Uplink ingress in each layout. may_be_tagged is 1 even in layout direct: without a gateway VLAN,
 * the result is the same, and only the deciding program needs the speed.
 */
SEC("tc")
int monitor_wire(struct __sk_buff *skb)
{
	int quick = quick_from_wire(skb, 1);
	__u32 reason = quick != UNSURE ? (__u32)quick : bounded_reason(from_wire(skb));

	return sample_packet(skb, FROM_WIRE, final_wire_reason(reason));
}

/* Bridge ingress in layout direct, uplink egress in layout dedicated. */
SEC("tc")
int monitor_ovn(struct __sk_buff *skb)
{
	return sample_packet(skb, FROM_OVN, ovn_reason(skb));
}

/*
 * Uplink egress in layout bridged: the packets of bridged_uplink_out(). monitor_host has already
 * sampled packets that the host has sent past OVS. They have tc_index and a mark. This tests
 * tc_index, which programs from before an upgrade also set. A pod that forges tc_index only hides
 * its packets from the monitor. A pod's packets with a shortcut are sampled here, like OVN's.
 */
SEC("tc")
int monitor_out(struct __sk_buff *skb)
{
	if (skb->tc_index == TC_HOST)
		return TC_ACT_UNSPEC;
	if (skb->mark == MARK_HOST)
		return sample_packet(skb, FROM_HOST, REASON_HOST_OUT);
	return sample_packet(skb, FROM_OVN, ovn_reason(skb));
}

/* Bridge egress in layout bridged. */
SEC("tc")
int monitor_host(struct __sk_buff *skb)
{
	int quick = quick_from_host(skb);

	return sample_packet(skb, FROM_HOST,
			     quick != UNSURE ? (__u32)quick : bounded_reason(from_host(skb)));
}
