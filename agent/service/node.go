package service

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// Node is what plans need to know of this node. Plans keep nothing of it.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone, "" if there is none

	NodePorts bool         // node ports and host ports are served here
	Local     bool         // local gateway mode: the host serves what arrives, by Group.Redirect
	Lookup    bool         // what arrives can be given to a socket of the host: bpf.ServiceHost
	Addresses []netip.Addr // with node ports for the world outside: the node's host-cidrs
	Own       []netip.Addr // all of the host's but those of Services, those on the bridge and link-local ones too; no zones

	Hosts   []netip.Addr // of the other nodes' hosts, sorted
	Cluster model.Config
}

// hostNetwork reports whether an endpoint is in this host's own network namespace.
func (n *Node) hostNetwork(e model.Endpoint) bool {
	a := e.Addr.Addr()
	return n.owns(a) || e.Node == n.Name && !slices.ContainsFunc(n.Cluster.Pods, func(p netip.Prefix) bool { return p.Contains(a) })
}

// local reports whether the endpoint is on this node. One of which the slice does not say the node
// is if it has an address of the host.
func (n *Node) local(e model.Endpoint) bool {
	return e.Node == n.Name || e.Node == "" && n.owns(e.Addr.Addr())
}

func (n *Node) owns(a netip.Addr) bool {
	return slices.Contains(n.Own, a) || slices.Contains(n.Addresses, a)
}

// outside returns the addresses of the family with node ports for the world outside.
func (n *Node) outside(is4 bool) []netip.Addr {
	var out []netip.Addr
	for _, a := range n.Addresses {
		if a.Is4() == is4 && n.Cluster.ServesNodePorts(a) {
			out = append(out, a)
		}
	}
	return out
}

// isHost reports whether the address is one of a host's, this one's or another's.
func (n *Node) isHost(a netip.Addr) bool {
	_, of := slices.BinarySearchFunc(n.Hosts, a, netip.Addr.Compare)
	return of || n.owns(a)
}

// keeps reports whether a front end is the node's own, whoever asks for it.
func (n *Node) keeps(k bpf.ServiceKey) bool {
	return k.Proto == model.NumberTCP && model.Keeps(model.TCP, netip.AddrPortFrom(k.Addr, k.Port), n.isHost)
}
