package bpf

import "fmt"

// Layout is how uplink, gateway bridge and host are wired, and so what it takes
// to hand a packet to one of them.
type Layout uint8

const (
	// Direct has the uplink outside OVS: what is OVN's is put into the bridge by its internal port.
	Direct Layout = iota
	// Bridged has the uplink in the bridge and the node's address on the bridge's internal port.
	Bridged
	// Dedicated has an uplink of OVN's alone in the bridge: programs only guard and count.
	Dedicated
)

var layoutNames = [...]string{Direct: "direct", Bridged: "bridged", Dedicated: "dedicated"}

func (l Layout) String() string {
	if int(l) < len(layoutNames) {
		return layoutNames[l]
	}
	return fmt.Sprintf("layout %d", uint8(l))
}
