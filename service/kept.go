package service

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// KeptPorts returns the TCP ports that are never a Service's or a pod's on any address of any
// host: ssh, kubelet, API server and etcd. A node is reached by them when all else fails.
func KeptPorts() []uint16 { return []uint16{22, 10250, 6443, 2379, 2380} }

// IsKept reports whether the protocol's port is one of KeptPorts.
func IsKept(proto corev1.Protocol, port uint16) bool {
	return Protocol(proto) == corev1.ProtocolTCP && slices.Contains(KeptPorts(), port)
}

// Keeps reports whether a frontend is a node's own, whoever asks for it. isHost reports whether an
// address is a host's. The unspecified address stands for all addresses of a host; loopback and
// link-local addresses are every host's.
func Keeps(proto corev1.Protocol, at netip.AddrPort, isHost func(netip.Addr) bool) bool {
	if !IsKept(proto, at.Port()) {
		return false
	}
	a := at.Addr()
	return a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || isHost(a)
}
