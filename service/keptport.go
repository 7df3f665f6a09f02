package service

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// KeptPort is a port that is kept for the hosts: no Service and no pod gets it at any address of a
// host. Otherwise the author of a Service could cut off a node, or serve its clients instead.
type KeptPort struct {
	Protocol corev1.Protocol // TCP or UDP
	Number   uint16
}

// TunnelPort is the UDP port of Geneve, by which OVN's tunnels connect the nodes.
const TunnelPort = 6081

// keptTCP returns the kept TCP ports:
//   - ssh, kubelet, API server and etcd, which keep a node reachable when everything else fails;
//   - the health checks of agent and controller, by which kubelet judges them;
//   - OVN's databases: 6641 Northbound, 6642 Southbound for the nodes and 6645 for the controller,
//     6643 and 6644 between the members of each.
func keptTCP() []uint16 {
	return []uint16{22, 10250, 6443, 2379, 2380, 9409, 9410, 10256, 6641, 6642, 6643, 6644, 6645}
}

// KeptPorts returns the ports that no Service and no pod gets at any address of a host.
func KeptPorts() []KeptPort {
	var out []KeptPort
	for _, port := range keptTCP() {
		out = append(out, KeptPort{corev1.ProtocolTCP, port})
	}

	return append(out, KeptPort{corev1.ProtocolUDP, TunnelPort})
}

// IsKept reports whether the protocol's port is one of KeptPorts.
func IsKept(proto corev1.Protocol, port uint16) bool {
	switch Protocol(proto) {
	case corev1.ProtocolTCP:
		return slices.Contains(keptTCP(), port)
	case corev1.ProtocolUDP:
		return port == TunnelPort
	}

	return false
}

// Keeps reports whether a frontend is reserved for the node itself: one of KeptPorts at an
// address of a host. isHost reports whether an interface of a host has an address. Other hosts do
// not publish their link-local addresses, so each link-local address counts as an address of a
// host.
func Keeps(proto corev1.Protocol, at netip.AddrPort, isHost func(netip.Addr) bool) bool {
	if !IsKept(proto, at.Port()) {
		return false
	}

	a := at.Addr()

	return IsOwn(a, isHost) || a.IsLinkLocalUnicast()
}
