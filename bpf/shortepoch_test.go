package bpf

import (
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// A new epoch costs a connection few packets through OVS, however many it has. A connection of the pod
// needs two requests and one answer, and a connection from outside one request and one answer. The
// agent raises the epoch at most ten times per second. So a connection with 1,000 exchanges per second
// keeps at least 98 % of the packets of each direction on shortcuts.
func TestForgetShortcuts_costsFewPackets(t *testing.T) {
	const epochs, exchanges = 10, 10

	for name, tt := range map[string]struct {
		proto   uint8
		port    uint16 // of the pod
		out     uint16 // outside
		inward  bool   // the client is outside
		in, own uint64 // packets through OVS per epoch, of the wire and of the pod
	}{
		"udp":          {protoUDP, 40000, 50000, false, 1, 2},
		"tcp":          {protoTCP, 40000, 50000, false, 1, 2},
		"nodeport udp": {protoUDP, 8053, 30053, true, 1, 1},
		"nodeport tcp": {protoTCP, 8080, 30080, true, 1, 1},
	} {
		for _, f := range []family{v4, v6} {
			t.Run(name+" "+f.name, func(t *testing.T) {
				r, c := newLiveShort(t), conn{f, tt.proto, tt.port, tt.out, 60}
				r.open(t, c)
				before := counts(t, r.pinDir)
				moved := func(reasons ...string) (sum uint64) {
					got := deltas(before, counts(t, r.pinDir))
					for _, reason := range reasons {
						sum += got[reason]
					}

					return sum
				}
				arrived := uint64(0)

				steps := []func(){
					func() {
						r.send(t, r.fromPod, [10]byte{}, c.segment(true, true, flagACK, 64))
						r.wire.expect(t, c.segment(true, false, flagACK, 62))
					},
					func() {
						r.send(t, r.fromWire, [10]byte{}, c.segment(false, false, flagACK, 60))

						arrived++

						eventually(t, "the packet from the wire to be counted", func() bool {
							return moved("snat_port", "snat_cached", "service", "service_cached") == arrived
						})
					},
				}
				if tt.inward {
					steps[0], steps[1] = steps[1], steps[0]
				}

				for range epochs {
					r.must(t, r.g.ForgetShortcuts)

					for range exchanges {
						steps[0]()
						steps[1]()
					}
				}

				in, own := moved("snat_port", "service"), moved("out")
				if in != epochs*tt.in || own != epochs*tt.own {
					t.Errorf("%d packets from the wire and %d of the pod passed OVS in %d epochs, want %d and %d", in, own, epochs, epochs*tt.in, epochs*tt.own)
				}

				if past := moved("snat_cached", "service_cached", "out_cached"); in+own+past != 2*epochs*exchanges {
					t.Errorf("%d packets passed OVS and %d bypassed it, sent were %d", in+own, past, 2*epochs*exchanges)
				}
			})
		}
	}
}

// By default an entry holds for one second, as docs/shortcuts.md says.
func TestShortcut_holdsForASecondByDefault(t *testing.T) {
	r := newShortRig(t, verdict.Direct, func(o *Options) { o.Shortcuts.Lease = 0 })
	c := conn{v4, protoUDP, 40000, 50000, 30}
	earliest := monotonic(t)
	r.open(t, c)
	latest := monotonic(t)

	const second, tick = time.Second, 10 * time.Millisecond // the programs' clock is up to a tick behind

	entries := 0

	err := eachEntry(r.g.objs.Shortcuts, func(_ gatewayShortcutKey, s gatewayShortcut) {
		entries++

		if until := time.Duration(s.Until); until < earliest+second-tick || until > latest+second {
			t.Errorf("an entry that was made between %s and %s holds until %s", earliest, latest, until)
		}
	})
	if err != nil || entries != 2 {
		t.Errorf("%d entries, want 2 (%v)", entries, err)
	}
}
