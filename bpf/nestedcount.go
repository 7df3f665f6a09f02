package bpf

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
)

// NestedCounter counts the packets of one reason since the state was first pinned.
type NestedCounter struct {
	Direction string // "rx": from the wire with a VLAN tag; "tx": from a pod
	Reason    string
	Packets   uint64 // a GSO packet counts as its segments
	Bytes     uint64 // of frames without preamble, checksum and VLAN tag
}

// nestedReasons names enum nested_reason of nested.h.
var nestedReasons = [nestedNestedReasonNESTED_REASON_MAX]string{
	nestedNestedReasonNESTED_IN:             "in",
	nestedNestedReasonNESTED_NO_POD:         "no_pod",
	nestedNestedReasonNESTED_FOREIGN_VLAN:   "foreign_vlan",
	nestedNestedReasonNESTED_OUT:            "out",
	nestedNestedReasonNESTED_HOST:           "host",
	nestedNestedReasonNESTED_SPOOFED_VLAN:   "spoofed_vlan",
	nestedNestedReasonNESTED_SPOOFED_SOURCE: "spoofed_source",
	nestedNestedReasonNESTED_UNKNOWN_DEVICE: "unknown_device",
}

// ReadNestedCounters sums the counters pinned in pinDir over all CPUs. It returns every reason,
// including those at zero, sorted by direction and reason.
func ReadNestedCounters(pinDir string) ([]NestedCounter, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(pinDir, nestedMapNestedCounts), nil)
	if err != nil {
		return nil, fmt.Errorf("open counters of nested pods in %q: %w", pinDir, err)
	}
	defer m.Close()

	counters := make([]NestedCounter, 0, len(nestedReasons))
	for i, name := range nestedReasons {
		c := NestedCounter{Direction: "rx", Reason: name}
		if i >= int(nestedNestedReasonNESTED_OUT_FIRST) {
			c.Direction = "tx"
		}

		var cpus []nestedCell
		if err := m.Lookup(uint32(i), &cpus); err != nil {
			return nil, fmt.Errorf("read counters of nested pods in %q: %w", pinDir, err)
		}

		for _, cpu := range cpus {
			c.Packets += cpu.Packets
			c.Bytes += cpu.Bytes
		}

		counters = append(counters, c)
	}

	slices.SortFunc(counters, func(a, b NestedCounter) int {
		return cmp.Or(cmp.Compare(a.Direction, b.Direction), cmp.Compare(a.Reason, b.Reason))
	})

	return counters, nil
}
