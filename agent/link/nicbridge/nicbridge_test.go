package nicbridge

import (
	"slices"
	"strings"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	for kind := range nics {
		t.Run(kind, func(t *testing.T) { roundTrip(t, newRigOn(t, kind)) })
	}
}

func roundTrip(t *testing.T, r *rig) {
	t.Helper()

	r.opts.Watchdog = nil
	before := r.state(t)
	r.reachable(t)

	v4, v6 := r.stream(t, "10.5.0.3"), r.stream(t, "fd05::2")
	if err := Move(t.Context(), r.opts); err != nil {
		t.Fatal(err)
	}

	r.reachable(t)

	if got := r.sw.Vsctl(t, "get", "Port", nicName, "other_config:transient"); got != "\"true\"\n" {
		t.Errorf("transient is %s: OVS would keep the NIC after a reboot", got)
	}

	for _, line := range r.state(t) {
		if strings.Contains(line, "inet") && strings.Contains(line, "dev "+nicName) {
			t.Errorf("left on the NIC: %s", line)
		}
	}

	moved := r.state(t)
	if err := Move(t.Context(), r.opts); err != nil {
		t.Fatal("again:", err)
	}

	if now := r.state(t); !slices.Equal(now, moved) {
		t.Errorf("moving again changed something:\n%s", strings.Join(now, "\n"))
	}

	for range 2 {
		if err := Restore(t.Context(), r.opts); err != nil {
			t.Fatal(err)
		}

		r.same(t, "round trip", before)
	}

	r.reachable(t)
	v4.alive(t)
	v6.alive(t)
}
