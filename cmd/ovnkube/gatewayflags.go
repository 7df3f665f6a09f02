package main

import (
	"fmt"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// gatewayFlags configure the wiring of the gateway. They are settings of the agent.
type gatewayFlags struct {
	layout, backend string // names of a verdict.Layout and of a gateway.Backend
	shortcuts       string // shortcutsAuto or shortcutsOff
	mode            gatewayMode
	vlan            int             // of packets on the uplink; 0: untagged
	routable        bool            // pods are reachable from outside, without SNAT
	addresses       addressPrefixes // of the gateway router in layout dedicated
	countServices   int             // maximum number of Service ports with their own counters
	shadowRate      int             // decisions per second to compare with the model; 0: none
}

func newGatewayFlags() gatewayFlags {
	return gatewayFlags{
		layout:        verdict.Direct.String(),
		backend:       string(gateway.EBPF),
		shortcuts:     shortcutsAuto,
		mode:          gatewayModeShared,
		countServices: 1000,
	}
}

func (g *gatewayFlags) settings() []*setting.Setting {
	return []*setting.Setting{
		{
			Flag:    "gateway-layout",
			Section: "gateway",
			Key:     "layout",
			Value: setting.Choice(&g.layout, verdict.Direct.String(), verdict.Bridged.String(),
				verdict.Dedicated.String()),
			About: []string{"layout"},
			Usage: "`layout` of the uplink: direct, bridged or dedicated. In direct, the uplink is not in " +
				"Open vSwitch and keeps the host's addresses and routes. In bridged, the uplink is a port " +
				"of the Open vSwitch bridge breth0, which has the host's addresses. The agent creates " +
				"this bridge if it is missing. In dedicated, the uplink is a port of the bridge, and has " +
				"no addresses of the host (docs/layouts.md)",
		},
		{
			Flag:    "gateway-backend",
			Section: "gateway",
			Key:     "backend",
			Value:   setting.Choice(&g.backend, string(gateway.EBPF), string(gateway.OpenFlow)),
			About:   []string{"backend"},
			Usage: "`backend` that decides whether the host or OVN gets a packet: ebpf or openflow. The " +
				"value openflow needs layout bridged. On a kernel that cannot run eBPF, the agent uses it " +
				"there by itself. With datapath netdev, layout bridged needs openflow, and layout dedicated " +
				"is not possible",
		},
		{
			Flag:    "gateway-vlanid",
			Section: "gateway",
			Key:     "vlan-id",
			Value:   setting.Number(&g.vlan, 0, 4094),
			About:   []string{"VLAN"},
			Usage: "`VLAN` ID of the node's packets on the uplink (0: untagged). Layout direct does not " +
				"support tags",
		},
		{
			Flag:    "gateway-mode",
			Section: "gateway",
			Key:     "mode",
			Value:   &g.mode,
			About:   []string{"gateway mode"},
			Usage: "`mode` in which packets of the node's pods leave the cluster: shared, local or none. " +
				"In shared, the packets leave through OVN, with the node's address. In local, the packets " +
				"follow the host's routes. In none, they leave through the gateways of other nodes in " +
				"mode shared, and the agent does not change this node's uplink",
		},
		{
			Flag:    "routable-pods",
			Section: "gateway",
			Key:     "routable-pods",
			Value:   setting.Switch(&g.routable),
			Usage: "do not translate the addresses of pods, because the network outside of the cluster " +
				"has routes to them",
		},
		{
			Flag:    "gateway-address",
			Section: "gateway",
			Key:     "address",
			Value:   &g.addresses,
			About:   []string{"gateway address"},
			Usage: "`addresses` of the gateway router with prefix length, separated by commas. Set one " +
				"address per IP family, and only in layout dedicated",
		},
		{
			Flag:    "gateway-shortcuts",
			Section: "gateway",
			Key:     "shortcuts",
			Value:   setting.Choice(&g.shortcuts, shortcutsAuto, shortcutsOff),
			Usage: "`mode` of shortcuts: auto or off. With auto, established North-South connections of " +
				"pods bypass Open vSwitch where this is supported (docs/shortcuts.md)",
		},
		{
			Flag:    "counted-service-ports",
			Section: "metrics",
			Key:     "counted-service-ports",
			Value:   setting.Number(&g.countServices, 0, 100000),
			Usage: "maximum number of Service `ports` that have packet counters of their own at the " +
				"uplink (0: none)",
		},
		{
			Flag:    "gateway-shadow-rate",
			Section: "gateway",
			Key:     "shadow-rate",
			Value:   setting.Number(&g.shadowRate, 0, 100000),
			Usage: "maximum `rate` of packet decisions per second to compare with the Go model of the " +
				"rules (0: none). Mismatches are counted and logged. With a rate, separate programs " +
				"decide every packet a second time. These programs need Linux 6.6 or newer",
		},
	}
}

// Values of --gateway-shortcuts.
const (
	shortcutsAuto = "auto"
	shortcutsOff  = "off"
)

// gatewayMode selects how pod traffic leaves the cluster.
type gatewayMode string

const (
	gatewayModeShared gatewayMode = "shared"
	gatewayModeLocal  gatewayMode = "local"
	gatewayModeNone   gatewayMode = "none"
)

func (m *gatewayMode) String() string { return string(*m) }

// Words returns the modes' names.
func (*gatewayMode) Words() []string {
	return []string{string(gatewayModeShared), string(gatewayModeLocal), string(gatewayModeNone)}
}

// Set accepts ovn-kubernetes's names, too: "" is its mode without a gateway.
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
	return setList(a, s, func(part string) (netip.Prefix, error) {
		prefix, err := netip.ParsePrefix(part)
		if err != nil {
			return prefix, fmt.Errorf("%q is no address with a prefix length like 192.0.2.5/24", part)
		}

		return prefix, nil
	})
}
