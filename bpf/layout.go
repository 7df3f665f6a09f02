package bpf

import "fmt"

// Layout is the wiring of uplink, gateway bridge and host. It determines how a packet is handed
// over.
type Layout uint8

const (
	// Direct has the uplink outside OVS. OVN's packets enter the bridge through its internal port.
	Direct Layout = iota
	// Bridged has the uplink in the bridge and the node's address on the bridge's internal port.
	Bridged
	// Dedicated has an uplink in the bridge that only OVN uses. Programs only guard and count.
	Dedicated
)

var layoutNames = [...]string{Direct: "direct", Bridged: "bridged", Dedicated: "dedicated"}

func (l Layout) String() string {
	if int(l) < len(layoutNames) {
		return layoutNames[l]
	}

	return fmt.Sprintf("layout %d", uint8(l))
}
