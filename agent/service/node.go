package service

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
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

	// Hosts are the addresses of the other nodes' hosts, sorted. On all hosts' addresses
	// annotation.KeptPorts are never front ends, whoever asks for them: by these a node
	// is reached when all else fails.
	Hosts []netip.Addr

	// ExternalIPs are where Services' external IPs may be; nil: anywhere.
	ExternalIPs []netip.Prefix

	PodCIDRs     []netip.Prefix
	ServiceCIDRs []netip.Prefix
	JoinSubnets  []netip.Prefix
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

// isHost reports whether the address is one of a host's, this one's or another's.
func (n *Node) isHost(a netip.Addr) bool {
	_, of := slices.BinarySearchFunc(n.Hosts, a, netip.Addr.Compare)
	return of || n.owns(a)
}

// keeps reports whether a front end is a node's own, whatever is asked for. The
// unspecified address stands for all of the host's. Loopback and link-local
// addresses are every host's.
func (n *Node) keeps(f bpf.ServiceKey) bool {
	if f.Proto != protoTCP || !annotation.IsKept(corev1.ProtocolTCP, f.Port) {
		return false
	}
	a := f.Addr
	return a.IsUnspecified() || a.IsLoopback() || a.IsLinkLocalUnicast() || n.isHost(a)
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
