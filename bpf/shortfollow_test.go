package bpf

import (
	"net"
	"testing"
	"time"
)

// TestShortcuts_followOVS: a busy connection, whose packets never pause, asks OVS again when its lease
// ends. If OVS sends its packets to another next hop, the shortcut does so, too. If they no longer
// leave by this node, because a gateway router has moved, none bypasses OVS any more, although packets
// from the wire still arrive.
func TestShortcuts_followOVS(t *testing.T) {
	const lease = 200 * time.Millisecond
	otherHop := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	for _, layout := range shortLayouts {
		r := newShortRig(t, layout, func(o *Options) { o.Shortcuts.Lease = lease })
		for _, f := range []family{v4, v6} {
			for _, proto := range []uint8{protoTCP, protoUDP} {
				c := conn{f, proto, 40000, 50000, 30}
				out, in := c.segment(true, true, flagACK, 64), c.segment(false, false, flagACK, 60)
				after := c.segment(true, false, flagACK, 62)
				moved := join(otherHop, after[6:])
				r.open(t, c)

				r.busy(t, c, 10*lease)
				_, number := r.fromPod(t, out)
				r.leave(t, number, moved).expect(t, "by OVS to the other next hop", retToOVS(layout), "out", moved)
				got, number := r.fromPod(t, out)
				if got.reason == "" { // the packet from the wire was before the last lease packet
					r.arrive(t, in)
					r.leave(t, number, moved)
					got, _ = r.fromPod(t, out)
				}
				got.expect(t, f.name+" past OVS to the other next hop", retRedirect, "out_cached", moved)

				r.busy(t, c, 10*lease)
				for range 5 { // what goes into OVS does not come out here
					got, _ := r.fromPod(t, out)
					got.expect(t, f.name+" after the gateway router has moved", retNext, "", out)
					r.arrive(t, in).expect(t, f.name+" from the wire, after the gateway router has moved", retToOVS(layout), "snat_port", in)
				}
			}
		}
	}
}

// busy sends packets of both directions that bypass OVS until none does.
func (r *shortRig) busy(t *testing.T, c conn, limit time.Duration) {
	t.Helper()
	out, in := c.segment(true, true, flagACK, 64), c.segment(false, false, flagACK, 60)
	for began, past := time.Now(), 0; ; {
		pod, _ := r.fromPod(t, out)
		wire := r.arrive(t, in)
		if pod.reason != "out_cached" && wire.reason != "snat_cached" {
			if past == 0 {
				t.Fatalf("%s, protocol %d: no packet bypasses OVS", c.f.name, c.proto)
			}
			return
		}
		past++
		if time.Since(began) > limit {
			t.Fatalf("%s, protocol %d: after %s packets still bypass OVS, by %q and %q", c.f.name, c.proto, limit, pod.reason, wire.reason)
		}
	}
}
