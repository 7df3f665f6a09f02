package e2e

import (
	"fmt"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Tally holds a node's gateway counters in packets, by class. The overlay and neighbour discovery
// are separate, as they occur at any time.
type Tally struct {
	HostRx     uint64 // from the wire to the host: management
	OVNRx      uint64 // from the wire to OVN: North-South
	OVNTx      uint64 // from OVN to the wire: North-South
	Both       uint64 // from the wire to OVN and to the host: echo replies that OVN asked for
	Overlay    uint64 // Geneve
	Neighbours uint64 // ARP and neighbour discovery
	Hairpin    uint64 // from OVN to the host, on the bridge alone
	Dropped    uint64
}

// overlay and neighbours name the reasons outside of the classes.
var (
	overlay    = map[string]bool{"geneve": true, "geneve_ovn": true, "encap_out": true}
	neighbours = map[string]bool{
		"arp_request": true, "arp_other": true, "arp_reply": true, "arp_gratuitous": true,
		"nd_solicit": true, "nd_other": true, "nd_advert": true, "nd_solicit_ovn": true, "router_advert": true,
		"neighbour_out": true, "bad_mac": true, "multicast": true,
	}
)

// ReadTally sums the counters pinned under pinDir.
func ReadTally(pinDir string) (Tally, error) {
	counters, err := bpf.ReadCounters(pinDir)
	if err != nil {
		return Tally{}, err
	}

	var t Tally

	for _, c := range counters {
		switch {
		case overlay[c.Reason]:
			t.Overlay += c.Packets
		case neighbours[c.Reason]:
			t.Neighbours += c.Packets
		case c.Reason == "hairpin":
			t.Hairpin += c.Packets
		case c.Verdict == "drop":
			t.Dropped += c.Packets
		case c.Verdict == "both":
			t.Both += c.Packets
		case c.Direction == "rx" && c.Port == "host":
			t.HostRx += c.Packets
		case c.Direction == "rx" && c.Port == "ovn":
			t.OVNRx += c.Packets
		case c.Direction == "tx" && c.Port == "ovn":
			t.OVNTx += c.Packets
		}
	}

	return t, nil
}

func (t Tally) minus(u Tally) Tally {
	return Tally{
		t.HostRx - u.HostRx, t.OVNRx - u.OVNRx, t.OVNTx - u.OVNTx, t.Both - u.Both,
		t.Overlay - u.Overlay, t.Neighbours - u.Neighbours, t.Hairpin - u.Hairpin, t.Dropped - u.Dropped,
	}
}

// Class is the required class of a path's traffic on one node.
type Class int

// Classes of traffic.
const (
	Absent     Class = iota // the node's uplink does not see the inner packets
	Management              // traffic of the host
	NorthSouth              // traffic of OVN
)

func (c Class) String() string {
	return [...]string{"absent", "management", "north-south"}[c]
}

// check compares the counters' increase for n requests with the class. Management traffic must not
// count for OVN at all. North-South traffic must not count for the host, except for less than one
// packet per request from the agent's own connection to the API server.
func (c Class) check(moved Tally, n uint64) error {
	if c == NorthSouth {
		if moved.OVNRx < n || moved.OVNTx < n {
			return fmt.Errorf("%d requests moved %d packets to OVN and %d from it", n, moved.OVNRx, moved.OVNTx)
		}

		if moved.HostRx >= n {
			return fmt.Errorf("%d requests moved %d packets to the host, North-South counted as management", n, moved.HostRx)
		}

		return nil
	}

	if moved.OVNRx > 0 || moved.OVNTx > 0 {
		return fmt.Errorf("%d packets to OVN and %d from it, %s counted as North-South", moved.OVNRx, moved.OVNTx, c)
	}

	if c == Management && moved.HostRx < n {
		return fmt.Errorf("%d requests moved %d packets to the host", n, moved.HostRx)
	}

	return nil
}
