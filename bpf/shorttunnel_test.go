package bpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

// TestShortcut_ignoresTunnels: tunnel packets of a pod are not observed, and teach nothing if a
// Service has given them the port of tunnels.
func TestShortcut_ignoresTunnels(t *testing.T) {
	for _, layout := range shortLayouts {
		for _, f := range []family{v4, v6} {
			t.Run(layout.String()+" "+f.name, func(t *testing.T) {
				const tunnelPort, servicePort = 443, 444 // the connection's port outside, and another one

				c := conn{f, protoUDP, 40000, 50000, 30}
				r := newShortRig(t, layout, func(o *Options) {
					o.Config.GenevePort = tunnelPort
					o.Config.PodTunnels = []netip.Prefix{netip.PrefixFrom(f.remote, f.remote.BitLen())}
				})

				sent, left := c.segment(true, true, 0, 64), c.segment(true, false, 0, 62)
				got, number := r.fromPod(t, sent)
				got.expect(t, "tunnel packet", retNext, "", sent)

				if number != 0 {
					t.Errorf("a tunnel packet is observed in slot %d", number)
				}

				sent = toPort(sent, servicePort)
				for range 3 {
					_, number := r.fromPod(t, sent)
					if number == 0 {
						t.Fatal("a packet to a Service is not observed")
					}

					r.leave(t, number, left).expect(t, "after OVS", retToOVS(layout), "out", left)

					if in := r.arrive(t, c.segment(false, false, 0, 60)); in.reason != "snat_port" {
						t.Errorf("the answer is decided by %s", in.reason)
					}
				}
			})
		}
	}
}

// toPort returns the frame with another destination port.
func toPort(frame []byte, port uint16) []byte {
	p := bytes.Clone(frame[14:])
	l4, _ := pseudoHeader(p)
	binary.BigEndian.PutUint16(p[l4+2:], port)

	hops := p[8]
	if l4 == 40 {
		hops = p[7]
	}

	return append(bytes.Clone(frame[:14]), whole(p, hops)...)
}
