package gateway

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Host is what the gateway needs to know of the machine.
type Host struct {
	Uplink    link.Link
	Bridge    *link.Link // nil: there is none
	Addresses []link.Address
	Defaults  []link.DefaultRoute
}

// Node is what other parts of the agent and the controller need to know.
type Node struct {
	Uplink    link.Link
	Addresses []netip.Prefix // the gateway router's, at most one a family, IPv4 first
	NextHops  []netip.Addr
	HostCIDRs []netip.Prefix // all of the host's own, sorted
}

// overlap returns an error that names what of the host lies in a pod network
// of the cluster or in that of the encap address: the routes to those, by the
// management port and by the bridge, would take packets to the host's own
// neighbours and routers away. Service networks get no route, and a node-local
// DNS cache or kube-proxy may well own addresses there.
func overlap(h Host, s Settings) error {
	for _, a := range h.Addresses {
		if s.Encap.IsValid() && s.Encap.Overlaps(a.Prefix) && !a.LinkLocal && !slices.Contains(s.NotHost, a.Device) {
			return fmt.Errorf("encap address %s is in the network of the host's address %s on %s", s.Encap, a.Prefix, a.Device)
		}
	}
	for _, p := range s.PodCIDRs {
		for _, a := range h.Addresses {
			if p.Contains(a.Prefix.Addr()) && !slices.Contains(s.NotHost, a.Device) {
				return fmt.Errorf("network %s of the cluster contains the host's address %s on %s", p, a.Prefix.Addr(), a.Device)
			}
		}
		for _, r := range h.Defaults {
			if p.Contains(r.NextHop) && !slices.Contains(s.NotHost, r.Device) {
				return fmt.Errorf("network %s of the cluster contains the host's next hop %s on %s", p, r.NextHop, r.Device)
			}
		}
	}
	return nil
}

// Address returns the node's address of the family, or the zero Addr.
func (n Node) Address(is4 bool) netip.Addr {
	for _, p := range n.Addresses {
		if p.Addr().Is4() == is4 {
			return p.Addr()
		}
	}
	return netip.Addr{}
}

// stranded returns the node's addresses of whose family there is no next hop.
func (n Node) stranded() []netip.Prefix {
	var out []netip.Prefix
	for _, p := range n.Addresses {
		if !slices.ContainsFunc(n.NextHops, func(a netip.Addr) bool { return a.Is4() == p.Addr().Is4() }) {
			out = append(out, p)
		}
	}
	return out
}

// nodeOf derives the Node from the host. Configured next hops win over those
// of the default routes on the uplink. Addresses of notHost devices (the
// bridge, the management port) are local but not the node's.
func nodeOf(h Host, nextHops []netip.Addr, notHost []string) Node {
	n := Node{Uplink: h.Uplink, NextHops: nextHops}
	for _, a := range h.Addresses {
		if a.LinkLocal || slices.Contains(notHost, a.Device) {
			continue
		}
		n.HostCIDRs = append(n.HostCIDRs, a.Prefix)
		if a.Device == h.Uplink.Name && !a.Secondary && !n.Address(a.Prefix.Addr().Is4()).IsValid() {
			n.Addresses = append(n.Addresses, a.Prefix)
		}
	}
	slices.SortFunc(n.HostCIDRs, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	n.HostCIDRs = slices.Compact(n.HostCIDRs)
	slices.SortFunc(n.Addresses, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) // IPv4 first
	if len(nextHops) > 0 {
		return n
	}
	for _, is4 := range []bool{true, false} {
		for _, r := range h.Defaults {
			if r.Device == h.Uplink.Name && r.NextHop.Is4() == is4 {
				n.NextHops = append(n.NextHops, r.NextHop)
				break
			}
		}
	}
	return n
}

// hostAddrs returns every local address, sorted: the gateway's host set.
func hostAddrs(h Host) []netip.Addr {
	var out []netip.Addr
	for _, a := range h.Addresses {
		out = append(out, a.Prefix.Addr().WithZone(""))
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// programConfig returns the programs' settings. Without a bridge that is up,
// Bridge is 0 and everything is passed to the host.
func programConfig(h Host, n Node, s Settings) bpf.Config {
	c := bpf.Config{
		Uplink: h.Uplink.Index, NodeMAC: h.Uplink.MAC,
		Node4: n.Address(true), Node6: n.Address(false),
		SNATPorts: s.SNATPorts, GenevePort: genevePort,
		ServiceCIDRs: s.ServiceCIDRs, PodCIDRs: s.PodCIDRs,
	}
	if s.Userspace {
		c.EncapIP = s.Encap.Addr()
	}
	if h.Bridge != nil && h.Bridge.Up {
		c.Bridge = h.Bridge.Index
	}
	return c
}

// bridgeAddresses returns what the bridge's internal port carries: the encap
// address on the userspace datapath, else nothing.
func bridgeAddresses(s Settings) []netip.Prefix {
	if !s.Userspace {
		return nil
	}
	return []netip.Prefix{s.Encap}
}
