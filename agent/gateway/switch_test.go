package gateway

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
)

// TestHostSwitch covers a killed mover: its watchdog detaches the agent's programs from the device,
// and keeps their maps.
func TestHostSwitch(t *testing.T) {
	for _, tc := range []struct{ clsact, lost bool }{{false, false}, {true, false}, {false, true}} {
		clsact := tc.clsact
		t.Run(fmt.Sprintf("clsact %t, OVSDB gone %t", clsact, tc.lost), func(t *testing.T) {
			r := newRig(t, ovs.DatapathNetdev)
			r.s.forceClsact = clsact
			r.start()
			r.hostAnswers()
			r.stop()

			before := r.pings()
			if before == 0 {
				t.Fatal("the program has not seen a ping")
			}

			sw, want := HostSwitch(r.ovs, r.s.Datapath, r.s.PinDir), error(nil)
			if tc.lost {
				want = errors.New("no database")
				sw = LostSwitch(want, r.s.PinDir)
			}

			for range 2 {
				if err := sw.Remove(t.Context(), "breth0", "eth0"); !errors.Is(err, want) {
					t.Fatalf("error %v, want %v", err, want)
				}
			}

			r.hostAnswers()

			if after := r.pings(); after != before {
				t.Errorf("%d pings counted after %d: a program is still there", after, before)
			}

			r.start()
			r.hostAnswers()

			if after := r.pings(); after <= before {
				t.Errorf("%d pings counted after %d: what was known is lost", after, before)
			}
		})
	}
}
