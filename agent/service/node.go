package service

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Node is the input about this node. Plans do not retain it.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone, "" if there is none

	NodePorts bool         // whether node ports and host ports are served on this node
	Local     bool         // local gateway mode: the host redirects arriving traffic by Group.Redirect
	Lookup    bool         // whether traffic can be handed to a host socket: bpf.ServiceHost
	Addresses []netip.Addr // serve node ports for outside clients: the node's host-cidrs
	Own       []netip.Addr // all host addresses, also on the bridge and link-local ones, but not those of Services; without zones

	Hosts   []netip.Addr // of the other nodes' hosts, sorted
	Cluster model.Config
}

// local reports whether the endpoint is on this node. Without a node name in the slice, an endpoint
// is local if it has a host address.
func (n *Node) local(e model.Endpoint) bool {
	return e.Node == n.Name || e.Node == "" && n.owns(e.Addr.Addr())
}

func (n *Node) owns(a netip.Addr) bool {
	return slices.Contains(n.Own, a) || slices.Contains(n.Addresses, a)
}

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
	_, of := slices.BinarySearchFunc(n.Hosts, a, netip.Addr.Compare)
	return of || n.owns(a)
}

// keeps reports whether a frontend is reserved for the node itself.
func (n *Node) keeps(k bpf.ServiceKey) bool {
	return k.Proto == model.NumberTCP && model.Keeps(model.TCP, netip.AddrPortFrom(k.Addr, k.Port), n.isHost)
}
