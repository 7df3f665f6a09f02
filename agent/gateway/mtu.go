package gateway

import "net/netip"

// Overhead of a Geneve tunnel with OVN's header: outer IP, UDP, Geneve with one option, inner
// Ethernet.
const overheadIPv4, overheadIPv6 = 20 + 8 + 16 + 14, 40 + 8 + 16 + 14

// PodMTU returns the configured MTU of pods. Without one, it derives the MTU from the uplink's and
// from the family of the tunnel address.
func (c Cluster) PodMTU(uplink int, tunnel netip.Addr) int {
	switch {
	case c.MTU != 0:
		return c.MTU
	case tunnel.Is6():
		return uplink - overheadIPv6
	default:
		return uplink - overheadIPv4
	}
}
