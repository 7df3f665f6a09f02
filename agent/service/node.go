package service

import (
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
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

	// Keep are never front ends, whoever asks for them: by these the node is
	// reached when all else fails.
	Keep []bpf.ServiceKey

	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	Masquerade   []netip.Prefix // addresses that host and OVN use between themselves
}

// hostNetwork says whether an endpoint is in this host's own network namespace.
func (n *Node) hostNetwork(addr netip.Addr, nodeName string) bool {
	return n.owns(addr) || nodeName == n.Name && !within(n.PodCIDRs, addr)
}

func (n *Node) owns(a netip.Addr) bool {
	return slices.Contains(n.Own, a) || slices.Contains(n.Addresses, a)
}

// servable says whether the gateway may serve an address to the world outside:
// not one by which a Service would take others' traffic.
func (n *Node) servable(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !within(n.ServiceCIDRs, a) && !within(n.PodCIDRs, a) && !within(n.Masquerade, a)
}

// outside returns the addresses of the family with node ports for the world outside.
func (n *Node) outside(is4 bool) []netip.Addr {
	var out []netip.Addr
	for _, a := range n.Addresses {
		if a.Is4() == is4 && n.servable(a) {
			out = append(out, a)
		}
	}
	return out
}

// keeps says whether a front end is the node's own, whatever is asked for. The
// unspecified address stands for those that are.
func (n *Node) keeps(f bpf.ServiceKey) bool {
	return slices.ContainsFunc(n.Keep, func(k bpf.ServiceKey) bool {
		return k.Proto == f.Proto && k.Port == f.Port &&
			(k.Addr == f.Addr || f.Addr.IsUnspecified() && f.Addr.Is4() == k.Addr.Is4())
	})
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// parse returns the addresses of the family among texts, in their order.
// What is no address is left out: the API server has said so already.
func parse(is4 bool, texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		a, err := netip.ParseAddr(s)
		if a = a.Unmap(); err == nil && a.Zone() == "" && a.Is4() == is4 {
			out = append(out, a)
		}
	}
	return out
}
