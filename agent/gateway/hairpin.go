package gateway

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

// hostHairpin is what the host needs on the bridge to reach OVN: what no socket
// program translates, such as what the host forwards, goes to Services through
// the node's gateway router, and OVN's answers find a way back.
func hostHairpin(n Node, s Settings) link.Hairpin {
	var h link.Hairpin
	if s.Layout == Dedicated || s.None {
		return h
	}
	h.MAC, _ = net.ParseMAC(masquerade.MAC) // a constant
	for _, p := range n.Addresses {
		m := masquerade.Of(p.Addr().Is4())
		h.Addresses = append(h.Addresses, m.Host)
		h.Neighbours = append(h.Neighbours, m.NextHop)
		h.Routes = append(h.Routes,
			link.Route{Prefix: single(m.NextHop), Source: m.Host},
			link.Route{Prefix: single(m.OVN), NextHop: m.NextHop, Source: p.Addr()})
		for _, c := range s.ServiceCIDRs {
			if c.Addr().Is4() == p.Addr().Is4() {
				h.Routes = append(h.Routes, link.Route{Prefix: c, NextHop: m.NextHop, Source: m.Host, MTU: s.PodMTU(n.Uplink.MTU, p.Addr())})
			}
		}
	}
	return h
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// withhold leaves out the routes to Services, but for what an earlier agent made.
func withhold(h link.Hairpin, services []netip.Prefix) link.Hairpin {
	h.Routes = slices.DeleteFunc(slices.Clone(h.Routes), func(r link.Route) bool { return slices.Contains(services, r.Prefix) })
	h.Keep = services
	return h
}

// syncHairpin is about the host's side of the bridge, which is up. A route to
// Services makes the host's sockets talk to them from the masquerade address: where
// kube-proxy has answered until now, it comes once we do.
func (t *topology) syncHairpin(n Node, settled bool) error {
	h := hostHairpin(n, t.s)
	if !settled {
		h = withhold(h, t.s.ServiceCIDRs)
	}
	if len(h.Addresses) == 0 {
		return nil
	}
	// Packets from OVN have the node's own addresses, as seen from the uplink.
	if err := link.WriteSysctl("net/ipv4/conf/"+t.s.Bridge+"/rp_filter", "2"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return link.SyncHairpin(t.s.Bridge, h)
}

// Overhead of Geneve as OVN uses it: outer IP, UDP, Geneve with one option,
// inner Ethernet.
const overheadIPv4, overheadIPv6 = 58, 78

// PodMTU returns the MTU of pods for an uplink's MTU and the address that
// tunnels end at, unless it is configured.
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
