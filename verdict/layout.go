package verdict

import "fmt"

// Layout is the wiring of uplink, gateway bridge and host. It determines how a backend hands a
// packet over. The rules do not depend on it.
type Layout uint

const (
	// Direct has the uplink outside OVS, with the host's addresses. OVN's packets enter the bridge
	// through its internal port.
	Direct Layout = iota
	// Bridged has the uplink in the bridge and the host's addresses on the bridge's internal port.
	Bridged
	// Dedicated has an uplink in the bridge that only OVN uses. The host has no address there.
	Dedicated
)

var layoutNames = [...]string{Direct: "direct", Bridged: "bridged", Dedicated: "dedicated"}

// ParseLayout returns the layout with a name.
func ParseLayout(name string) (Layout, error) {
	for l, n := range layoutNames {
		if n == name {
			return Layout(l), nil
		}
	}

	return 0, fmt.Errorf("layout %q: want direct, bridged or dedicated", name)
}

func (l Layout) String() string {
	if int(l) < len(layoutNames) {
		return layoutNames[l]
	}

	return fmt.Sprintf("layout %d", uint(l))
}
