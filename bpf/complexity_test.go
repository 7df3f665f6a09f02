package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
)

// complexity limits the instructions that the verifier inspects in each program. Exceeding it needs
// a justification; the verifier stops at a million. The limits are for the worst of the tested
// kernels (6.1, 6.12, 6.18).
var complexity = map[string]uint32{
	"uplink_ingress":       20000,
	"bridge_ingress":       24000, // finding a shortcut has a branch for each family
	"bridged_uplink_in":    20000,
	"bridged_uplink_out":   24000,
	"bridged_bridge_in":    100,
	"bridged_bridge_out":   4000,
	"dedicated_uplink_in":  15000,
	"dedicated_uplink_out": 13000, // with pods' tunnel packets, for each family
	"pod_direct":           15000, // with what it remembers of a packet, for each family and protocol
	"pod_bridged":          15000,
}

func TestGateway_complexity(t *testing.T) {
	counts := verified(t, loadShort)
	for name, n := range counts {
		checkComplexity(t, name, n, complexity[name])
	}

	if len(counts) != len(complexity) {
		t.Errorf("%d programs, %d limits", len(counts), len(complexity))
	}
}

// loadShort is loadGateway with shortcuts on: off, the verifier skips their code.
func loadShort() (*ebpf.CollectionSpec, error) {
	spec, err := loadGateway()
	if err != nil {
		return nil, err
	}

	return spec, spec.Variables["shortcuts_on"].Set(uint8(1))
}

// verified loads an object by itself and returns the number of instructions that the verifier
// inspected, by program.
func verified(t *testing.T, load func() (*ebpf.CollectionSpec, error)) map[string]uint32 {
	t.Helper()

	spec, err := load()
	if err != nil {
		t.Fatal(err)
	}

	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}

	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer coll.Close()

	counts := make(map[string]uint32)

	for name, p := range coll.Programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}

		n, ok := info.VerifiedInstructions()
		if !ok {
			t.Skip("kernel does not tell (before 5.16)")
		}

		counts[name] = n
	}

	return counts
}

func checkComplexity(t *testing.T, name string, n, limit uint32) {
	t.Helper()
	t.Logf("%-22s %6d verified", name, n)

	if n > limit {
		t.Errorf("program %s: the verifier looked at %d instructions, more than %d", name, n, limit)
	}
}
