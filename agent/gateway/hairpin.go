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

// hostHairpin returns the host's configuration on the bridge for traffic to OVN. Traffic to
// Services that no socket program translates, such as forwarded packets, goes through the node's
// gateway router. The configuration also gives OVN's replies a path back.
func hostHairpin(n Node, s Settings) link.Hairpin {
	var h link.Hairpin
	if s.Layout == verdict.Dedicated || s.NoGateway {
		return h
	}

	h.MAC, _ = net.ParseMAC(masquerade.MAC) // masquerade.MAC is a valid constant

	for _, p := range n.Addresses {
		m := masquerade.Of(p.Addr().Is4())
		h.Addresses = append(h.Addresses, m.Host)
		h.Neighbours = append(h.Neighbours, m.NextHop)
		h.Routes = append(h.Routes, link.Route{Prefix: single(m.NextHop), Source: m.Host})

		if slices.Contains(n.Gone, p) { // the kernel has removed the route with its source
			h.Keep = append(h.Keep, single(m.OVN))
		} else {
			h.Routes = append(h.Routes,
				link.Route{Prefix: single(m.OVN), NextHop: m.NextHop, Source: p.Addr()})
		}

		for _, c := range s.ServiceCIDRs {
			if c.Addr().Is4() == p.Addr().Is4() {
				h.Routes = append(h.Routes, link.Route{
					Prefix:  c,
					NextHop: m.NextHop,
					Source:  m.Host,
					MTU:     s.PodMTU(n.Uplink.MTU, p.Addr()),
				})
			}
		}
	}

	return h
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// withoutServiceRoutes removes the routes to Services, except those that an earlier agent created.
func withoutServiceRoutes(h link.Hairpin, services []netip.Prefix) link.Hairpin {
	h.Routes = slices.DeleteFunc(slices.Clone(h.Routes),
		func(r link.Route) bool { return slices.Contains(services, r.Prefix) })
	h.Keep = slices.Concat(h.Keep, services)

	return h
}

// syncHairpin configures the host's side of the bridge. The bridge must be up. A route to Services
// makes the host's sockets use the masquerade address as source. Where kube-proxy has served them
// until now, the route is added only once the agent serves them.
func (t *topology) syncHairpin(n Node, settled bool) error {
	h := hostHairpin(n, t.s)
	if !settled {
		h = withoutServiceRoutes(h, t.s.ServiceCIDRs)
	}

	if len(h.Addresses) == 0 {
		return nil
	}

	// As seen from the uplink, packets from OVN have the node's own addresses.
	err := link.WriteSysctl("net/ipv4/conf/"+t.s.Bridge+"/rp_filter", "2")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}

	return link.SyncHairpin(t.s.Bridge, h)
}

// Geneve overhead with OVN's header: outer IP, UDP, Geneve with one option, inner Ethernet.
const overheadIPv4, overheadIPv6 = 58, 78

// PodMTU returns the configured MTU of pods. Without one it derives the MTU from the uplink's and
// from the family of the tunnel address.
func (c Cluster) PodMTU(uplink int, encap netip.Addr) int {
	switch {
	case c.MTU != 0:
		return c.MTU
	case encap.Is6():
		return uplink - overheadIPv6
	default:
		return uplink - overheadIPv4
	}
}
