package gateway

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Host is the machine's network configuration, as far as the gateway needs it. Each round of the
// gateway's loop reads it again.
type Host struct {
	Uplink    link.Link
	Bridge    *link.Link          // nil if the bridge does not exist
	Addresses []link.Address      // of all devices
	Defaults  []link.DefaultRoute // of the main table
	Hops      []link.Hop          // of uplink and bridge, to the networks outside
	Known     knownAddresses      // by which the cluster knows the node

	// Only View.observe sets the following.
	Ephemeral []cluster.PortRange // among which the kernel chooses ports for the host's connections
	TCP       []netip.AddrPort    // local addresses of TCP listeners, sorted
	UDP       []netip.AddrPort    // local addresses of unconnected UDP sockets, sorted
}

// Node is the part of the gateway's state that the controller and other parts of the agent need. It
// follows from Host and Settings (see nodeOf).
type Node struct {
	Uplink    link.Link
	Addresses []netip.Prefix // of the gateway router, at most one per family, IPv4 first
	NextHops  []netip.Addr   // of the gateway router's default routes, at most one per family, IPv4 first
	Routes    []link.Hop     // of the gateway router to other networks, of families without NextHops
	HostCIDRs []netip.Prefix // the host's own addresses and Gone, sorted; nodeOf leaves some out
	Gone      []netip.Prefix // those of Addresses that the host lost a short time ago
}

// checkOverlap returns an error when an address or next hop of the host lies in a pod network, or
// when a host address lies in the network of the encap address. The routes to these networks use
// the management port and the bridge, and would divert packets from the host's neighbours and
// routers. Service networks need no check: they have no route, and a node-local DNS cache or
// kube-proxy may own addresses there.
func checkOverlap(h Host, s Settings) error {
	isHostDevice := func(device string) bool { return !slices.Contains(s.NotHost, device) }

	for _, a := range h.Addresses {
		if s.Encap.IsValid() && s.Encap.Overlaps(a.Prefix) && !a.LinkLocal && isHostDevice(a.Device) {
			return fmt.Errorf("encap address %s is in the network of host address %s on %s",
				s.Encap, a.Prefix, a.Device)
		}
	}

	for _, p := range s.PodCIDRs {
		for _, a := range h.Addresses {
			if p.Contains(a.Prefix.Addr()) && isHostDevice(a.Device) {
				return fmt.Errorf("network %s of the cluster contains host address %s on %s",
					p, a.Prefix.Addr(), a.Device)
			}
		}

		for _, r := range h.Defaults {
			if p.Contains(r.NextHop) && isHostDevice(r.Device) {
				return fmt.Errorf("network %s of the cluster contains next hop %s of the host on %s",
					p, r.NextHop, r.Device)
			}
		}

		for _, r := range h.Hops {
			if p.Contains(r.Via) && isHostDevice(r.Device) {
				return fmt.Errorf("network %s of the cluster contains next hop %s of the host on %s",
					p, r.Via, r.Device)
			}
		}
	}

	return nil
}

// checkDedicatedUplink returns an error if layout dedicated cannot separate the gateway from the
// host: the uplink has a host address, for which it could no longer answer as a port of OVS, or any
// device of the host has a gateway address.
func checkDedicatedUplink(h Host, s Settings) error {
	if s.Layout != verdict.Dedicated {
		return nil
	}

	for _, a := range h.Addresses {
		if a.Device == s.Uplink && !a.LinkLocal {
			return fmt.Errorf("uplink %s has host address %s: layout dedicated needs a NIC without one",
				s.Uplink, a.Prefix.Addr())
		}

		for _, own := range s.Addresses {
			if own.Addr() == a.Prefix.Addr() {
				return fmt.Errorf("gateway address %s is a host address on %s: layout dedicated needs a separate one",
					own.Addr(), a.Device)
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

// TunnelAddress returns the address of the node's tunnels: the configured one, or else the node's
// own, IPv4 first. Without either it returns the zero Addr.
func (n Node) TunnelAddress(configured netip.Addr) netip.Addr {
	if configured.IsValid() {
		return configured
	}

	if a := n.Address(true); a.IsValid() {
		return a
	}

	return n.Address(false)
}

// Stranded returns the node's addresses whose family has no route to other networks.
func (n Node) Stranded() []netip.Prefix {
	var out []netip.Prefix

	for _, p := range n.Addresses {
		if !n.hasRoute(p.Addr().Is4()) {
			out = append(out, p)
		}
	}

	return out
}

// hasRoute reports whether the gateway router has a route of the family to other networks.
func (n Node) hasRoute(is4 bool) bool {
	return slices.ContainsFunc(n.NextHops, func(a netip.Addr) bool { return a.Is4() == is4 }) ||
		slices.ContainsFunc(n.Routes, func(r link.Hop) bool { return r.Prefix.Addr().Is4() == is4 })
}

// StandIns returns an IPv4 address for each IPv6 next hop of an IPv4 route. In OVN's routes, the
// gateway router has this address as the next hop, because OVN before 24.09 refuses a next hop of
// the other family, and later releases take one only for a router that resolves no neighbours. The
// addresses are not in any packet: the router only looks up the MAC address that belongs to them.
func (n Node) StandIns() map[netip.Addr]netip.Addr {
	out := map[netip.Addr]netip.Addr{}
	// The first one is the next hop that FRRouting shows for such routes.
	free := netip.AddrFrom4([4]byte{169, 254, 0, 1})

	for _, r := range n.Routes {
		if _, known := out[r.Via]; known || !r.Via.Is6() || r.Prefix.Addr().Is6() {
			continue
		}

		for slices.ContainsFunc(n.Routes, func(o link.Hop) bool { return o.Via == free }) {
			free = free.Next()
		}

		out[r.Via] = free
		free = free.Next()
	}

	return out
}

// addRoutes adds the gateway router's routes of a family. A single default route by a next hop of
// the family goes to NextHops, all others to Routes.
func (n *Node) addRoutes(routes []link.Hop) {
	if len(routes) == 1 {
		only := routes[0]
		is4 := only.Prefix.Addr().Is4()

		if only.Prefix == link.Everything(is4) && only.Via.IsValid() && only.Via.Is4() == is4 {
			n.NextHops = append(n.NextHops, only.Via)
			return
		}
	}

	n.Routes = append(n.Routes, routes...)
}

// nodeOf derives the Node from the host.
//
//   - In layout dedicated the addresses are the configured ones. In other layouts they are those of
//     the device that has the host's addresses (see preferred).
//   - Configured next hops take precedence over the kernel's routes by the device.
//   - Addresses of NotHost devices (the management port, a bridge that only OVN uses) are local but
//     are not node addresses.
//   - Service addresses are not node addresses either. kube-proxy in IPVS mode assigns all of them
//     to a device, and OVN would create a load balancer for each NodePort on each of them.
func nodeOf(h Host, s Settings) Node {
	n := Node{Uplink: h.Uplink, Addresses: slices.Clone(s.Addresses), NextHops: s.NextHops}
	device, excluded := s.HostDevice(), slices.Concat(masqueradeNetworks(), s.ServiceCIDRs)

	var candidates []link.Address

	for _, a := range h.Addresses {
		if a.LinkLocal || slices.Contains(s.NotHost, a.Device) ||
			cluster.Contains(excluded, a.Prefix.Addr()) {
			continue
		}

		n.HostCIDRs = append(n.HostCIDRs, a.Prefix)
		if a.Device == device && !a.Duplicate {
			candidates = append(candidates, a)
		}
	}

	for _, is4 := range []bool{true, false} {
		if p, ok := preferred(candidates, h.Known, is4); ok && !n.Address(is4).IsValid() {
			n.Addresses = append(n.Addresses, p)
		}
	}

	byAddr := func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) } // IPv4 first
	slices.SortFunc(n.HostCIDRs, byAddr)
	n.HostCIDRs = slices.Compact(n.HostCIDRs)
	slices.SortFunc(n.Addresses, byAddr)

	if len(s.NextHops) > 0 {
		return n
	}

	for _, is4 := range []bool{true, false} {
		n.addRoutes(hopsOf(h.Hops, device, is4))
	}

	return n
}

// hopsOf returns the routes of a device and family.
func hopsOf(hops []link.Hop, device string, is4 bool) []link.Hop {
	return slices.DeleteFunc(slices.Clone(hops),
		func(r link.Hop) bool { return r.Device != device || r.Prefix.Addr().Is4() != is4 })
}

// hostAddrs returns the addresses whose packets may be for the host: those of all devices, sorted.
func hostAddrs(h Host) []netip.Addr {
	var out []netip.Addr
	for _, a := range h.Addresses {
		out = append(out, a.Prefix.Addr().WithZone(""))
	}

	slices.SortFunc(out, netip.Addr.Compare)

	return slices.Compact(out)
}

// ownAddrs returns the addresses at which the host's own sockets reach NodePorts: hostAddrs without
// Service addresses.
func ownAddrs(h Host, s Settings) []netip.Addr {
	return slices.DeleteFunc(hostAddrs(h), func(a netip.Addr) bool { return cluster.Contains(s.ServiceCIDRs, a) })
}

// bridgeAddresses returns the addresses that the agent puts on the bridge's internal port: the
// encap address on the userspace datapath, otherwise none.
func bridgeAddresses(s Settings) []netip.Prefix {
	if !s.Userspace() {
		return nil
	}

	return []netip.Prefix{s.Encap}
}

// nodeAddrs returns the host's own addresses and those of the gateway router, without duplicates.
// With the result of trustedOnly, they are the addresses at which the node serves NodePorts.
func nodeAddrs(n Node) []netip.Addr {
	out := addrsOf(n.HostCIDRs)
	for _, a := range addrsOf(n.Addresses) {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}

	return out
}
