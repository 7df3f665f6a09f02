package service

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Node is the input about this node. Plans do not retain it, so it may be changed for the next
// plan.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone, "" if there is none

	NodePorts bool         // whether node ports and host ports are served on this node
	Local     bool         // local gateway mode: the host redirects arriving traffic by Group.Redirect
	Lookup    bool         // whether the gateway can look up a host socket: verdict.ServiceHost
	Addresses []netip.Addr // the node's host-cidrs, at which outside clients reach node ports
	// Own are all addresses of the host without those of Services, also on the bridge, also
	// link-local ones. They have no zones.
	Own []netip.Addr

	// Ephemeral are the ports among which the host's kernel chooses for its connections. No
	// frontend gets them at an address of the host.
	Ephemeral []cluster.PortRange
	// UDP are the local addresses of the host's UDP sockets that are not connected, except on
	// ephemeral ports. No host port and no external IP gets their ports at an address of the host.
	UDP []netip.AddrPort
	// TCP are the local addresses of the host's TCP listeners, except on ephemeral ports. Only
	// loopback and unspecified addresses are needed: no host port gets their ports at a loopback
	// address.
	TCP []netip.AddrPort

	Hosts   []netip.Addr // addresses of the other nodes' hosts, sorted
	Nodes   int          // model.CountedNodes of the cluster
	Cluster model.Config
}

// local reports whether the endpoint is on this node. Without a node name in the slice, an endpoint
// is local if it has a host address.
func (n *Node) local(e model.Endpoint) bool {
	return e.Node == n.Name || e.Node == "" && n.owns(e.Addr.Addr())
}

// owns reports whether an address is one of this node's: of the host, or one at which it serves
// node ports.
func (n *Node) owns(a netip.Addr) bool {
	return model.IsOwn(a, func(a netip.Addr) bool { return n.has(a) || slices.Contains(n.Addresses, a) })
}

// has reports whether an interface of the host has the address.
func (n *Node) has(a netip.Addr) bool { return slices.Contains(n.Own, a) }

// outside returns the addresses of the family that serve node ports to outside clients.
func (n *Node) outside(is4 bool) []netip.Addr {
	var out []netip.Addr

	for _, a := range n.Addresses {
		if a.Is4() == is4 && n.Cluster.ServesNodePorts(a) {
			out = append(out, a)
		}
	}

	return out
}

// isHost reports whether the address belongs to the host of this or another node.
func (n *Node) isHost(a netip.Addr) bool {
	_, isOther := slices.BinarySearchFunc(n.Hosts, a, netip.Addr.Compare)

	return isOther || n.owns(a)
}

// takenByHost returns the reason why a frontend at an address of the host belongs to the host
// itself, or "". isChosen reports whether a tenant chose the port: a host port, or a port of an
// external IP.
func (n *Node) takenByHost(k verdict.ServiceKey, isChosen bool) string {
	if !model.IsOwn(k.Addr, n.has) {
		return ""
	}

	if slices.ContainsFunc(n.Ephemeral, func(r cluster.PortRange) bool { return r.Contains(k.Port) }) {
		return "the host's connections use this port (net.ipv4.ip_local_port_range, without ip_local_reserved_ports)"
	}

	var sockets []netip.AddrPort

	switch {
	case k.Proto == model.NumberUDP:
		sockets = n.UDP
	case k.Proto == model.NumberTCP && k.Addr.IsLoopback():
		sockets = n.TCP
	}

	if isChosen && slices.ContainsFunc(sockets, func(s netip.AddrPort) bool { return receives(s, k) }) {
		return "a socket of the host is open on this port"
	}

	return ""
}

// receives reports whether a socket at a local address gets packets to a frontend. A socket on ::
// may also get those of IPv4. An unspecified frontend stands for all addresses of the host except
// loopback, as for host ports.
func receives(socket netip.AddrPort, k verdict.ServiceKey) bool {
	if socket.Port() != k.Port {
		return false
	}

	local := socket.Addr()
	if k.Addr.IsUnspecified() && local.Is4() == k.Addr.Is4() {
		return !local.IsLoopback()
	}

	return local == k.Addr || local.IsUnspecified() && (local.Is6() || k.Addr.Is4())
}

// reserves reports whether a frontend is reserved for the node itself or for the control plane. The
// controller writes the Event about it. clusterIPs are those of the frontend's Service.
func (n *Node) reserves(k verdict.ServiceKey, clusterIPs []netip.Addr) bool {
	proto, at := model.ProtocolOf(k.Proto), netip.AddrPortFrom(k.Addr, k.Port)
	if model.Keeps(proto, at, n.isHost) {
		return true
	}

	if slices.Contains(clusterIPs, k.Addr) {
		return false // the API server allocates them
	}

	if n.Cluster.ControlPlane.Keeps(proto, at) != "" {
		return true
	}

	if !k.Addr.IsUnspecified() || k.Proto != model.NumberTCP {
		return false
	}

	// The frontend stands for all addresses of the host.
	return n.Cluster.ControlPlane.ServesAt(k.Port, func(a netip.Addr) bool {
		return a.Is4() == k.Addr.Is4() && (a.IsLoopback() || n.owns(a))
	})
}
