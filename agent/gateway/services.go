package gateway

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// serviceKeys returns what of (address, protocol, port) is OVN's: each
// NodePort of each Service on each of the node's addresses of the Service's
// families. Sorted, without repetition.
func serviceKeys(services []*corev1.Service, node []netip.Addr) []bpf.ServiceKey {
	var out []bpf.ServiceKey
	for _, s := range services {
		if s.Spec.Type != corev1.ServiceTypeNodePort && s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, p := range s.Spec.Ports {
			proto, ok := protocolNumber(p.Protocol)
			if !ok || p.NodePort < 1 || p.NodePort > 65535 {
				continue
			}
			for _, a := range node {
				if hasFamily(s, a) {
					out = append(out, bpf.ServiceKey{Addr: a, Proto: proto, Port: uint16(p.NodePort)})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b bpf.ServiceKey) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(out)
}

func hasFamily(s *corev1.Service, a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	if len(s.Spec.IPFamilies) == 0 {
		return true
	}
	want := corev1.IPv4Protocol
	if a.Is6() {
		want = corev1.IPv6Protocol
	}
	return slices.Contains(s.Spec.IPFamilies, want)
}

func protocolNumber(p corev1.Protocol) (uint8, bool) {
	switch p {
	case corev1.ProtocolTCP, "":
		return 6, true
	case corev1.ProtocolUDP:
		return 17, true
	case corev1.ProtocolSCTP:
		return 132, true
	}
	return 0, false
}
