package status

import "github.com/ovn-ebpf/ovn-ebpf/bpf"

// Nested is the state of the programs for nested pods, in underlay mode.
type Nested struct {
	Counters []bpf.NestedCounter
	Err      error
}

// lookNested reads the counters, which are pinned as long as the programs.
func lookNested(r Record) Nested {
	counters, err := bpf.ReadNestedCounters(r.Paths.PinDir)
	return Nested{counters, err}
}

// passed returns the packets that reached or left pods.
func (n Nested) passed() map[string]uint64 {
	out := map[string]uint64{}

	for _, c := range n.Counters {
		switch c.Reason {
		case "in", "out", "host":
			out[c.Direction+" "+c.Reason] = c.Packets
		}
	}

	return out
}

// underlay checks a node in underlay mode. The agent reports the state of the NIC and of the pool.
func (j *judge) underlay() {
	if err := j.Nested.Err; err != nil {
		j.add("programs", Broken, j.repair, "pods have no connection: %v", err)
	} else {
		j.add("programs", Right, "", "%s", j.Record.Paths.PinDir)
	}

	j.cni()
}
