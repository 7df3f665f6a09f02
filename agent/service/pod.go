package service

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// HasHostPorts reports whether a pod asks for front ends at all.
func HasHostPorts(pod *corev1.Pod) bool {
	ports, _ := model.HostPorts(pod)
	return len(ports) > 0
}

// planPod plans the host ports of a pod of this node: each is a node port of
// this node alone, with the pod behind it.
func planPod(pod *corev1.Pod, n *Node) *Plan {
	if pod.Spec.NodeName != n.Name || !n.NodePorts {
		return nil
	}
	p := &Plan{Created: pod.CreationTimestamp.Time}
	var pods []netip.Addr
	for _, text := range append([]corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs...) {
		if a, err := netip.ParseAddr(text.IP); err == nil {
			pods = append(pods, a.Unmap())
		}
	}
	ports, _ := model.HostPorts(pod) // the controller says what is refused
	for _, port := range ports {
		proto := protocolNumber(port.Protocol)
		for _, is4 := range []bool{true, false} {
			to := model.OfFamily(pods, is4)
			if len(to) == 0 {
				continue
			}
			backend := netip.AddrPortFrom(to[0], port.Container)
			g := Group{Proto: proto, Backends: []netip.AddrPort{backend}}
			if n.Local {
				g.Redirect = g.Backends
			}
			p.add(g, hostPortFrontEnds(frontEnds{proto: proto, node: n}, port, is4))
			if proto == protoUDP {
				p.UDP = append(p.UDP, backend)
			}
		}
	}
	return p
}

// hostPortFrontEnds are those of one family. A host port without an address, or with the
// unspecified one of the family, is on every address; one with an address that the node does not
// have is nowhere: a pod must not take what the host sends to others.
func hostPortFrontEnds(f frontEnds, port model.HostPort, is4 bool) []FrontEnd {
	at := port.At
	switch {
	case !at.IsValid() || at.IsUnspecified() && at.Is4() == is4:
		return f.nodePort(port.Number, is4, f.node.outside(is4))
	case at.Is4() != is4 || !at.IsLoopback() && !f.node.owns(at):
		return nil
	case !f.node.Cluster.ServesNodePorts(at):
		return f.internal(port.Number, []netip.Addr{at})
	}
	return f.external(port.Number, []netip.Addr{at})
}
