package e2e

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// wiring is the gateways' configuration in the lab. It determines the location of addresses and the
// owner of packets on the wire.
type wiring struct {
	layout string // as in --gateway-layout
	flows  bool   // backend openflow
	local  bool   // local gateway mode
	uplink string // one of the lab.Uplink constants
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

// Uplink returns the device with a node's addresses.
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

// bridge returns the OVS bridge between the uplink and br-int.
func (c *Cluster) bridge() string { return "br" + c.uplink }

// gateway returns the address of a node's gateway router by family. Except in layout dedicated, it
// is the node's address.
func (c *Cluster) gateway(i int) func(bool) netip.Addr {
	return func(v6 bool) netip.Addr { return c.GatewayIP(i, v6) }
}

// rewire adapts a path, defined for one device shared by host and OVN, to this wiring. In local
// gateway mode the host's stack replaces OVN at the gateway. In layout dedicated the host's packets
// do not pass the gateway.
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
