package main

import (
	"flag"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ovn-ebpf/ovn-ebpf/agent"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
)

// gatewayFlags say how the gateway is wired.
type gatewayFlags struct {
	layout, backend string
	mode            gatewayMode
	vlan            int
	local, routable bool
	addresses       addressPrefixes
}

func (g *gatewayFlags) declare(f *flag.FlagSet) {
	f.StringVar(&g.layout, "gateway-layout", string(gateway.Direct), `how the uplink is wired (`+"`layout`"+`): direct: not in OVS, it keeps the host's addresses and routes;
bridged: a port of the OVS bridge breth0, which has the host's addresses; where it is none yet, it is made one;
dedicated: a port of the bridge, and the host has no address there`)
	f.StringVar(&g.backend, "gateway-backend", string(gateway.EBPF), "what tells host and OVN apart (`backend`): ebpf, or openflow (layout bridged only)")
	f.IntVar(&g.vlan, "gateway-vlanid", 0, "the node's `VLAN` on the uplink, not in layout direct; 0: untagged")
	g.mode = gatewayModeShared
	f.Var(&g.mode, "gateway-mode", `how the node's pods leave the cluster (`+"`mode`"+`): shared: by OVN, with the node's address; local: by the host's routes;
none: by the gateways of other nodes in mode shared; nothing on this node's uplink is touched`)
	f.BoolVar(&g.local, "gateway-local", false, "the same as --gateway-mode=local")
	f.BoolVar(&g.routable, "routable-pods", false, "pods are known outside by their own addresses: they leave without NAT")
	f.Var(&g.addresses, "gateway-address", "the gateway router's `addresses` with prefix length, one a family, by commas; layout dedicated only")
}

func (g *gatewayFlags) config(bfd bool) agent.GatewayConfig {
	return agent.GatewayConfig{
		Layout: gateway.Layout(g.layout), Backend: gateway.Backend(g.backend), VLAN: g.vlan,
		Local: g.local || g.mode == gatewayModeLocal, None: g.mode == gatewayModeNone, BFD: bfd, Routable: g.routable, Addresses: g.addresses,
	}
}

// gatewayMode is how pods leave the cluster.
type gatewayMode string

const (
	gatewayModeShared gatewayMode = "shared"
	gatewayModeLocal  gatewayMode = "local"
	gatewayModeNone   gatewayMode = "none"
)

func (m *gatewayMode) String() string { return string(*m) }

// Set takes ovn-kubernetes's words too: its mode without a gateway is "".
func (m *gatewayMode) Set(s string) error {
	switch s {
	case string(gatewayModeShared), string(gatewayModeLocal):
		*m = gatewayMode(s)
	case string(gatewayModeNone), "disabled", "":
		*m = gatewayModeNone
	default:
		return fmt.Errorf("%q is not shared, local or none", s)
	}
	return nil
}

// addressPrefixes is a comma-separated list of addresses with prefix length.
type addressPrefixes []netip.Prefix

func (a *addressPrefixes) String() string { return joined(*a) }

func (a *addressPrefixes) Set(s string) error {
	list := addressPrefixes{}
	for _, part := range strings.Split(s, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return fmt.Errorf("%q is no address with a prefix length like 192.0.2.5/24", part)
		}
		list = append(list, prefix)
	}
	*a = list
	return nil
}
