package results

import (
	"strings"
	"testing"
)

// TestDescribe holds that the machine is known, which a run must say.
func TestDescribe(t *testing.T) {
	r := Describe(t.Context(), Native)

	m := r.Machine
	if m.CPU == "unknown" || m.Cores < 1 || m.Memory < 64 || !strings.HasPrefix(m.Kernel, "Linux ") || r.Commit == "unknown" || r.Platform == "" {
		t.Errorf("%+v", r)
	}

	for i, name := range []string{"Go ", "Open vSwitch ", "OVN ", "QEMU ", "nftables "} {
		version, ok := strings.CutPrefix(strings.Split(r.Versions, ", ")[i], name)
		if !ok || version != "unknown" && !strings.ContainsAny(version[:1], "0123456789") {
			t.Errorf("version of %s: %q", name, version)
		}
	}
}
