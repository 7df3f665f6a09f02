package main

import (
	"fmt"
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/cmd/ovnkube/setting"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// gatewayFlags configure the wiring of the gateway.
type gatewayFlags struct {
	layout, backend string
	shortcuts       string
	mode            gatewayMode
	vlan            int
	routable        bool
	addresses       addressPrefixes
	countServices   int
	shadowRate      int
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
			Usage: `how the uplink is wired (` + "`layout`" + `): direct: not in OVS, with the host's addresses and routes;
bridged: a port of the OVS bridge breth0, which has the host's addresses and is created if needed;
dedicated: a port of the bridge, without addresses of the host`,
		},
		{
			Flag:    "gateway-backend",
			Section: "gateway",
			Key:     "backend",
			Value:   setting.Choice(&g.backend, string(gateway.EBPF), string(gateway.OpenFlow)),
			About:   []string{"backend"},
			Usage:   "`backend` that distinguishes traffic of host and OVN: ebpf, or openflow (layout bridged only)",
		},
		{
			Flag:    "gateway-vlanid",
			Section: "gateway",
			Key:     "vlan-id",
			Value:   setting.Number(&g.vlan, 0, 4094),
			About:   []string{"VLAN"},
			Usage:   "`VLAN` of the node on the uplink, not in layout direct; 0: untagged",
		},
		{
			Flag:    "gateway-mode",
			Section: "gateway",
			Key:     "mode",
			Value:   &g.mode,
			About:   []string{"gateway mode"},
			Usage: `how traffic of the node's pods leaves the cluster (` + "`mode`" + `): shared: through OVN, with the node's address; local: by the host's routes;
none: by the gateways of other nodes in mode shared, without changes to this node's uplink`,
		},
		{
			Flag:    "routable-pods",
			Section: "gateway",
			Key:     "routable-pods",
			Value:   setting.Switch(&g.routable),
			Usage:   "pod addresses are routable outside: pod traffic leaves without NAT",
		},
		{
			Flag:    "gateway-address",
			Section: "gateway",
			Key:     "address",
			Value:   &g.addresses,
			About:   []string{"gateway address"},
			Usage:   "the gateway router's `addresses` with prefix length, one per family, separated by commas; layout dedicated only",
		},
		{
			Flag:    "gateway-shortcuts",
			Section: "gateway",
			Key:     "shortcuts",
			Value:   setting.Choice(&g.shortcuts, shortcutsAuto, shortcutsOff),
			Usage: `whether established North-South connections of pods bypass OVS by eBPF (` + "`mode`" + `): off, or
auto: where it is supported; see docs/shortcuts.md`,
		},
		{
			Flag:    "counted-service-ports",
			Section: "metrics",
			Key:     "counted-service-ports",
			Value:   setting.Number(&g.countServices, 0, 100000),
			Usage:   "maximum number of Service `ports` with their own packet counters at the uplink; 0: none",
		},
		{
			Flag:    "gateway-shadow-rate",
			Section: "gateway",
			Key:     "shadow-rate",
			Value:   setting.Number(&g.shadowRate, 0, 100000),
			Usage: `maximum ` + "`rate`" + ` of decisions per second to compare with the Go model of the rules; 0: none, at no cost.
Mismatches are counted and logged. Separate programs decide every packet a second time; needs Linux 6.6`,
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
