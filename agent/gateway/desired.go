package gateway

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
)

// Host is what the gateway needs to know of the machine.
type Host struct {
	Uplink    link.Link
	Bridge    *link.Link // nil: there is none
	Addresses []link.Address
	Defaults  []link.DefaultRoute
	InUse     []netip.Addr // the node's so far
}

// Node is what other parts of the agent and the controller need to know.
type Node struct {
	Uplink    link.Link
	Addresses []netip.Prefix // the gateway router's, at most one a family, IPv4 first
	NextHops  []netip.Addr
	HostCIDRs []netip.Prefix // all of the host's own but those of Services, sorted
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

// shared returns an error when the uplink of layout dedicated has an address of
// the host's: as a port of OVS it would not answer there any more.
func shared(h Host, s Settings) error {
	if s.Layout != Dedicated {
		return nil
	}
	for _, a := range h.Addresses {
		if a.Device == s.Uplink && !a.LinkLocal {
			return fmt.Errorf("uplink %s has the host's address %s: layout dedicated wants a NIC without one", s.Uplink, a.Prefix.Addr())
		}
		for _, own := range s.Addresses {
			if own.Addr() == a.Prefix.Addr() {
				return fmt.Errorf("gateway address %s is the host's on %s: layout dedicated wants one of its own", own.Addr(), a.Device)
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

// preferred returns the address of the family that the node is known by, of
// those given. OVN's connections hang on it, so the one in use stays as long as it
// can. Else it is, of IPv4, the first. Of IPv6 the kernel lists the newest first, and
// anybody on the link can add one by a router advertisement: it is the oldest that
// does not expire, else the oldest.
func preferred(of []link.Address, inUse []netip.Addr, is4 bool) (netip.Prefix, bool) {
	var best link.Address
	for _, a := range of {
		switch {
		case a.Prefix.Addr().Is4() != is4:
		case slices.Contains(inUse, a.Prefix.Addr()):
			return a.Prefix, true
		case !best.Prefix.IsValid() || !is4 && (best.Dynamic || !a.Dynamic):
			best = a
		}
	}
	return best.Prefix, best.Prefix.IsValid()
}

// nodeOf derives the Node from the host. In layout dedicated its addresses are
// the configured ones, else those of the device that has the host's; configured
// next hops win over those of the default routes there. Addresses of NotHost
// devices (the management port, a bridge that is only OVN's) are local but not
// the node's. Nor are those of Services: kube-proxy's IPVS mode gives its device
// every one there is, and OVN would have a load balancer for each NodePort on each.
func nodeOf(h Host, s Settings) Node {
	n := Node{Uplink: h.Uplink, Addresses: slices.Clone(s.Addresses), NextHops: s.NextHops}
	device := s.HostDevice()
	var candidates []link.Address
	for _, a := range h.Addresses {
		if a.LinkLocal || slices.Contains(s.NotHost, a.Device) || within(masqueradeNetworks(), a.Prefix.Addr()) || within(s.ServiceCIDRs, a.Prefix.Addr()) {
			continue
		}
		n.HostCIDRs = append(n.HostCIDRs, a.Prefix)
		if a.Device == device && !a.Secondary {
			candidates = append(candidates, a)
		}
	}
	for _, is4 := range []bool{true, false} {
		if p, ok := preferred(candidates, h.InUse, is4); ok && !n.Address(is4).IsValid() {
			n.Addresses = append(n.Addresses, p)
		}
	}
	slices.SortFunc(n.HostCIDRs, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	n.HostCIDRs = slices.Compact(n.HostCIDRs)
	slices.SortFunc(n.Addresses, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) }) // IPv4 first
	if len(s.NextHops) > 0 {
		return n
	}
	for _, is4 := range []bool{true, false} {
		for _, r := range h.Defaults {
			if r.Device == device && r.NextHop.Is4() == is4 {
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

// ownAddrs returns those by which the host's sockets reach its NodePorts: the host
// set without addresses of Services.
func ownAddrs(h Host, s Settings) []netip.Addr {
	return slices.DeleteFunc(hostAddrs(h), func(a netip.Addr) bool { return within(s.ServiceCIDRs, a) })
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// bridgeAddresses returns what of ours the bridge's internal port carries: the
// encap address on the userspace datapath, else nothing.
func bridgeAddresses(s Settings) []netip.Prefix {
	if !s.Userspace() {
		return nil
	}
	return []netip.Prefix{s.Encap}
}

// nodeAddrs are those with NodePorts: all of the node's own, as in the
// controller's load balancers, and the gateway router's.
func nodeAddrs(n Node) []netip.Addr {
	out := addrsOf(n.HostCIDRs)
	for _, a := range addrsOf(n.Addresses) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
