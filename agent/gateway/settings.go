package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Layout says how the uplink, the gateway bridge and the host are wired.
type Layout string

// The layouts.
const (
	Direct    Layout = "direct"    // the uplink is not in OVS and keeps the host's addresses
	Bridged   Layout = "bridged"   // the uplink is a port of the bridge, which has the host's addresses
	Dedicated Layout = "dedicated" // the uplink is a port of the bridge and the host has no address there
)

// Backend is what decides whose a packet is.
type Backend string

// The backends.
const (
	EBPF     Backend = "ebpf"
	OpenFlow Backend = "openflow" // flows on the bridge, Bridged only
)

// Settings are the parts of the gateway's configuration that do not change
// while it runs.
type Settings struct {
	Wiring
	Cluster
	PinDir     string
	RunDir     string   // ours
	OVSRunDir  string   // has the bridges' .mgmt sockets
	Watchdog   []string // command of nicbridge's watchdog, nil for none
	CgroupPath string   // cgroup2 mount, "" = the one that is found
	NotHost    []string // devices whose addresses are not the node's
	NoEBPF     string   // why programs cannot be used here, "" if they can

	CountServices int // ports of Services whose packets are counted, at most

	forceClsact bool // in tests: as a kernel without tcx
}

// Wiring is how the gateway is connected.
type Wiring struct {
	Uplink    string
	Bridge    string
	Layout    Layout // "" is Direct
	Backend   Backend
	VLAN      uint16         // not Direct: the node's VLAN on the uplink, 0 = untagged
	Addresses []netip.Prefix // Dedicated: the gateway router's, at most one a family, IPv4 first
	NextHops  []netip.Addr   // nil: those of the default routes
	Datapath  string         // ovs.DatapathSystem or ovs.DatapathNetdev
	Encap     netip.Prefix   // DatapathNetdev: the tunnels' address on the bridge
}

// Cluster is what the gateway serves.
type Cluster struct {
	SNATPorts    bpf.PortRange
	NodePorts    bool
	ServiceCIDRs []netip.Prefix
	ExternalIPs  []netip.Prefix // where Services' external IPs may be; nil: anywhere
	PodCIDRs     []netip.Prefix
	Local        bool // local gateway mode
	None         bool // the node has no gateway: its pods leave by other nodes'
	BFD          bool
	Routable     bool // pods are known outside by their own addresses
	MTU          int  // of pods; 0 = the uplink's less Geneve's overhead
}

// Userspace reports whether OVS forwards packets in vswitchd.
func (w Wiring) Userspace() bool { return w.Datapath == ovs.DatapathNetdev }

// HostDevice is the device that has the host's addresses; Dedicated has none.
func (w Wiring) HostDevice() string {
	switch w.Layout {
	case Bridged:
		return w.Bridge
	case Dedicated:
		return ""
	default:
		return w.Uplink
	}
}

// Defaulted returns the settings with the default layout and backend where none is given.
func (s Settings) Defaulted() Settings {
	s.Layout, s.Backend = cmp.Or(s.Layout, Direct), cmp.Or(s.Backend, EBPF)
	return s
}

// Validate returns what does not go together, joined.
func (s Settings) Validate() error {
	var err error
	if s.None && (s.Local || s.Layout != "" && s.Layout != Direct) {
		err = errors.New("gateway mode none: there is no gateway to have a layout or be local")
	}
	return errors.Join(err, s.Wiring.Validate())
}

// Validate returns what does not go together, joined.
func (w Wiring) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !slices.Contains([]Layout{"", Direct, Bridged, Dedicated}, w.Layout) {
		bad("gateway layout %q: want direct, bridged or dedicated", w.Layout)
	}
	if !slices.Contains([]Backend{"", EBPF, OpenFlow}, w.Backend) {
		bad("gateway backend %q: want ebpf or openflow", w.Backend)
	}
	if w.Backend == OpenFlow && w.Layout != Bridged {
		bad("gateway backend openflow: only in layout bridged, where OVS sees every packet")
	}
	if w.VLAN != 0 && w.Layout != Bridged && w.Layout != Dedicated {
		bad("gateway VLAN %d: not in layout direct; give the VLAN device as the uplink", w.VLAN)
	}
	if w.VLAN > 4094 {
		bad("gateway VLAN %d: want 1..4094", w.VLAN)
	}
	if w.Datapath == ovs.DatapathNetdev && w.Layout == Bridged && w.Backend != OpenFlow {
		bad("layout bridged on the userspace datapath: OVS has a packet before eBPF: use backend openflow or layout direct")
	}
	if w.Datapath == ovs.DatapathNetdev && w.Layout == Dedicated {
		bad("layout dedicated on the userspace datapath: tunnels want an address on a bridge; use layout direct")
	}
	return errors.Join(append(errs, w.validateAddresses())...)
}

func (w Wiring) validateAddresses() error {
	if w.Layout != Dedicated {
		if len(w.Addresses) > 0 {
			return errors.New("gateway address: only in layout dedicated; elsewhere it is the node's")
		}
		return nil
	}
	if len(w.Addresses) == 0 {
		return errors.New("gateway address: layout dedicated wants one, with its prefix length")
	}
	if len(w.NextHops) == 0 {
		return errors.New("gateway next hop: layout dedicated wants one")
	}
	for i, p := range w.Addresses {
		if !p.Addr().IsGlobalUnicast() {
			return fmt.Errorf("gateway address %s: want one that others reach", p)
		}
		if slices.ContainsFunc(w.Addresses[:i], func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }) {
			return fmt.Errorf("gateway address %s: the second of its family", p)
		}
	}
	return nil
}
