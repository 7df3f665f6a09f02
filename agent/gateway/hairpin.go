package gateway

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// The hairpin is the path between the node's host and OVN's gateway router through the gateway
// bridge. Both have the same address, so each sends to the other at a masquerade address, which
// flows of the bridge translate. It carries packets to Services that no socket program translates,
// such as forwarded packets, and packets from OVN to the host, such as for endpoints on the host's
// network.

// hostHairpin returns the host's part of the hairpin: addresses, neighbours and routes on the
// bridge. It is empty in layout dedicated, where the host has no address on the bridge, and without
// a gateway.
func hostHairpin(n Node, s Settings) link.Hairpin {
	if s.Layout == verdict.Dedicated || s.NoGateway {
		return link.Hairpin{}
	}

	mac, err := net.ParseMAC(masquerade.MAC)
	if err != nil {
		panic(err) // it is a constant
	}

	h := link.Hairpin{MAC: mac}
	mtu := s.PodMTU(n.Uplink.MTU, n.TunnelAddress(s.Tunnel))

	for _, own := range n.Addresses {
		addOVNPath(&h, own.Addr(), slices.Contains(n.Gone, own))
		h.Routes = append(h.Routes, serviceRoutes(s.ServiceCIDRs, own.Addr().Is4(), mtu)...)
	}

	return h
}

// addOVNPath adds what one family needs to reach OVN: the host's masquerade address, the next hop,
// and a route to OVN's masquerade address, with the host's own address as source.
func addOVNPath(h *link.Hairpin, own netip.Addr, gone bool) {
	m := masquerade.Of(own.Is4())

	h.Addresses = append(h.Addresses, m.Host)
	h.Neighbours = append(h.Neighbours, m.NextHop)
	h.Routes = append(h.Routes, link.Route{Prefix: hostPrefix(m.NextHop), Source: m.Host})

	// If the host has just lost its address, the kernel has removed the route with this source, and
	// would reject it. A route that is still there must not be removed.
	if gone {
		h.Keep = append(h.Keep, hostPrefix(m.OVN))
		return
	}

	h.Routes = append(h.Routes, link.Route{Prefix: hostPrefix(m.OVN), NextHop: m.NextHop, Source: own})
}

// serviceRoutes returns the routes to the service networks of a family, with the MTU of pods. Their
// source is the host's masquerade address, at which OVN can send replies to the host.
func serviceRoutes(services []netip.Prefix, is4 bool, mtu int) []link.Route {
	var out []link.Route

	m := masquerade.Of(is4)
	for _, p := range services {
		if p.Addr().Is4() == is4 {
			out = append(out, link.Route{Prefix: p, NextHop: m.NextHop, Source: m.Host, MTU: mtu})
		}
	}

	return out
}

// hostPrefix returns the prefix that contains only a.
func hostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// withoutServiceRoutes returns a copy of h that does not add the routes to Services. If an earlier
// agent has added them, it keeps them.
func withoutServiceRoutes(h link.Hairpin, services []netip.Prefix) link.Hairpin {
	h.Routes = slices.DeleteFunc(slices.Clone(h.Routes),
		func(r link.Route) bool { return slices.Contains(services, r.Prefix) })
	h.Keep = slices.Concat(h.Keep, services)

	return h
}

// syncHairpin configures the host's side of the bridge. The bridge must be up. servesServices means
// that the agent serves Services to the host's sockets. Until then, kube-proxy may serve them, and
// syncHairpin adds no routes to Services: with these, sockets use the masquerade address as source.
func (t *topology) syncHairpin(n Node, servesServices bool) error {
	h := hostHairpin(n, t.s)
	if !servesServices {
		h = withoutServiceRoutes(h, t.s.ServiceCIDRs)
	}

	if len(h.Addresses) == 0 {
		return nil
	}

	// 2 is loose mode. Strict reverse path filtering would drop packets from OVN whose source the
	// host reaches by the uplink. If the bridge is missing, SyncHairpin returns the error.
	err := link.WriteSysctl("net/ipv4/conf/"+t.s.Bridge+"/rp_filter", "2")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	return link.SyncHairpin(t.s.Bridge, h)
}
