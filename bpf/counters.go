package bpf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Counter counts the packets of one reason since the state was first pinned. The strings are the
// labels of the agent's metric.
type Counter struct {
	Port      string // receiver ("rx") or sender ("tx"): "host", "ovn", "both"; "none" if dropped
	Direction string // "rx": from the wire at the uplink; "tx": from OVN, or from the host in layout bridged
	Verdict   string // "host", "ovn", "both", "out", "drop"
	Reason    string // name in the list of verdict
	Packets   uint64 // a GSO packet counts as its segments
	Bytes     uint64 // of frames on the wire, without preamble, checksum and VLAN tags that the NIC has removed
}

// CounterOf returns the counter of a rule, without counts.
func CounterOf(r verdict.Rule) Counter {
	c := Counter{Port: "ovn", Direction: "tx", Verdict: r.Verdict.String(), Reason: r.Name}

	switch r.Direction {
	case verdict.FromWire:
		c.Port, c.Direction = c.Verdict, "rx"
	case verdict.FromHost:
		c.Port = "host"
	}

	if r.Verdict == verdict.Drop {
		c.Port = "none"
	}

	return c
}

// ReadCounters sums the counters pinned in pinDir over all CPUs. It returns every reason, including
// those at zero, sorted by direction, port and reason.
func ReadCounters(pinDir string) ([]Counter, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, "counters"), nil)
	if err != nil {
		return nil, fmt.Errorf("open gateway counters in %q: %w", pinDir, err)
	}
	defer m.Close()

	var cpus []gatewayCells
	if err := m.Lookup(uint32(0), &cpus); err != nil {
		return nil, fmt.Errorf("read gateway counters in %q: %w", pinDir, err)
	}

	return sumCounters(cpus), nil
}

// Reasons returns all counters, without counts, in the order of ReadCounters.
func Reasons() []Counter { return sumCounters(nil) }

// sumCounters returns the counters of all reasons, with the sums over the CPUs, sorted.
func sumCounters(cpus []gatewayCells) []Counter {
	counters := make([]Counter, verdict.ReasonCount)

	for i := range counters {
		c := CounterOf(verdict.Reason(i).Rule())

		for _, cpu := range cpus {
			c.Packets += cpu.Reason[i].Packets
			c.Bytes += cpu.Reason[i].Bytes
		}

		counters[i] = c
	}

	slices.SortFunc(counters, byLabels)

	return counters
}

func byLabels(a, b Counter) int {
	return strings.Compare(a.Direction+a.Port+a.Reason, b.Direction+b.Port+b.Reason)
}
