package machine

import (
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/bench/results"
)

// TestDescribe holds that the machine is known, which a run must say.
func TestDescribe(t *testing.T) {
	r := Describe(t.Context(), results.Native)
	m := r.Machine
	if m.CPU == "unknown" || m.Cores < 1 || m.Memory < 64 || !strings.HasPrefix(m.Kernel, "Linux ") || r.Commit == "unknown" {
		t.Errorf("%+v", r)
	}
	for name, version := range r.Versions {
		if version != "unknown" && !strings.ContainsAny(version[:1], "0123456789") {
			t.Errorf("version of %s: %q", name, version)
		}
	}
}
