package service

import (
	"net/netip"

	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// planPod plans the host ports of a pod on this node. Only this node serves them, with the pod as
// their backend. The controller reports which of them it refuses at addresses that it serves.
func planPod(pod *model.Pod, n *Node) *Plan {
	if pod.Node != n.Name || !n.NodePorts {
		return nil
	}

	p := &Plan{Created: pod.Created}
	for _, port := range pod.Ports {
		proto := model.ProtocolNumber(port.Protocol)
		for _, is4 := range []bool{true, false} {
			backend, ok := pod.Backend(port, is4)
			if !ok {
				continue
			}

			g := Group{Proto: proto, Backends: []netip.AddrPort{backend}, NotLoopback: true}
			if n.Local {
				g.Redirect = g.Backends
			}

			p.add(g, hostPortFrontends(frontends{proto: proto, node: n}, port, is4))

			if proto == model.NumberUDP {
				p.UDP = append(p.UDP, backend)
			}
		}
	}

	return p
}

// hostPortFrontends returns the frontends of one family. A host port at an address that the node
// does not have gets none: a pod must not take over traffic from the host to others. Without a host
// IP, or with an unspecified one, a host port is not served at loopback addresses
// (Group.NotLoopback): services of the host listen there, such as a resolver at 127.0.0.53.
func hostPortFrontends(f frontends, port model.HostPort, is4 bool) []Frontend {
	at := port.At
	switch {
	case port.Everywhere(is4):
		return f.nodePort(port.Number, is4, f.node.outside(is4))
	case at.Is4() != is4 || !f.node.owns(at):
		return nil
	case !f.node.Cluster.ServesNodePorts(at):
		return f.internal(port.Number, []netip.Addr{at})
	}

	return f.external(port.Number, []netip.Addr{at})
}
