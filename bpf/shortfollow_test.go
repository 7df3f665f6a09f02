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
	const lease, maxTries = 200 * time.Millisecond, 50

	otherHop := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}

	for _, layout := range shortLayouts {
		r := newShortRig(t, layout, func(o *Options) { o.Shortcuts.Lease = lease })

		for _, f := range []family{v4, v6} {
			for _, proto := range []uint8{protoTCP, protoUDP} {
				c := conn{f, proto, 40000, 50000, 30}
				out, in := c.segment(true, true, flagACK, 64), c.segment(false, false, flagACK, 60)
				after := c.segment(true, false, flagACK, 62)
				moved := join(otherHop, after[6:])

				past := 0
				for tries := 0; past == 0; tries++ { // a slow machine may take longer than a lease
					if tries == maxTries {
						t.Fatalf("%s, protocol %d: no packet bypasses OVS", f.name, proto)
					}

					r.open(t, c)
					past = r.busy(t, c, 10*lease)
				}

				var got sight
				for tries := 0; got.reason == ""; tries++ {
					if tries == maxTries {
						t.Fatalf("%s, protocol %d: no packet bypasses OVS to the other next hop", f.name, proto)
					}

					r.arrive(t, in)
					_, number := r.fromPod(t, out)
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

// busy sends packets of both directions until none bypasses OVS, and returns how many have.
func (r *shortRig) busy(t *testing.T, c conn, limit time.Duration) (past int) {
	t.Helper()

	out, in := c.segment(true, true, flagACK, 64), c.segment(false, false, flagACK, 60)
	for began := time.Now(); ; past++ {
		pod, _ := r.fromPod(t, out)

		wire := r.arrive(t, in)
		if pod.reason != "out_cached" && wire.reason != "snat_cached" {
			return past
		}

		if time.Since(began) > limit {
			t.Fatalf("%s, protocol %d: after %s packets still bypass OVS, by %q and %q", c.f.name, c.proto, limit, pod.reason, wire.reason)
		}
	}
}
