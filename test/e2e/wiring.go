package e2e

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// wiring is how the lab's gateways are told to be, which says where addresses
// are, and whose a packet on the wire must be.
type wiring struct {
	layout string // as in --gateway-layout
	flows  bool   // backend openflow
	local  bool   // local gateway mode
	uplink string // a lab.Uplink…
}

func wiringOf(o lab.Options) wiring {
	w := wiring{layout: "direct", uplink: o.Uplink}
	if o.Uplink == "" {
		w.uplink = lab.UplinkPlain
	}
	if o.Uplink == lab.UplinkOwn {
		w.layout = dedicated
	}
	for _, arg := range o.AgentArgs {
		if layout, found := strings.CutPrefix(arg, "--gateway-layout="); found {
			w.layout = layout
		}
	}
	w.flows = slices.Contains(o.AgentArgs, "--gateway-backend=openflow")
	w.local = slices.Contains(o.AgentArgs, "--gateway-mode=local")
	return w
}

const bridged, dedicated = "bridged", "dedicated"

// Uplink is the device that has a node's addresses.
func (c *Cluster) Uplink() string {
	switch c.layout {
	case bridged:
		return c.bridge()
	case dedicated:
		return lab.UplinkPlain
	default:
		return c.uplink
	}
}

// bridge is the OVS bridge between the uplink and br-int.
func (c *Cluster) bridge() string { return "br" + c.uplink }

// gateway returns the address of a node's gateway router by family: the node's
// own, but in layout dedicated.
func (c *Cluster) gateway(i int) func(bool) netip.Addr {
	return func(v6 bool) netip.Addr { return c.GatewayIP(i, v6) }
}

// rewire makes of a path, as it is with one device for host and OVN, what it is
// with this wiring. In local gateway mode the host's own stack does what OVN does
// else. In layout dedicated the host's packets do not meet the gateway at all.
func (w wiring) rewire(p *Path) *Path {
	if w.local {
		p.SNAT = false
	}
	for node, class := range p.Class {
		switch {
		case w.local && class == NorthSouth:
			p.Class[node] = Management
		case w.layout == dedicated && class == Management:
			delete(p.Class, node)
		}
	}
	return p
}
