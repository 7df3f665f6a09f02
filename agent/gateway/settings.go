package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Backend is the kind of backend, which decides whether the host or OVN owns a packet. "" means
// EBPF.
type Backend string

// The backends.
const (
	EBPF     Backend = "ebpf"
	OpenFlow Backend = "openflow" // flows on the bridge, only in layout Bridged
)

// Settings is the part of the gateway's configuration that does not change at run time. Validate
// must return nil for it.
type Settings struct {
	Wiring
	Cluster

	PinDir     string   // directory in bpffs with the pins of programs and maps
	RunDir     string   // run directory of the agent
	OVSRunDir  string   // contains the bridges' .mgmt sockets
	Watchdog   []string // command of nicbridge's watchdog, nil for none
	CgroupPath string   // cgroup2 mount, "" to detect it
	NotHost    []string // devices with addresses that are not node addresses, such as the management port
	NoEBPF     string   // why the kernel cannot run the programs, or ""

	CountServices int  // limit of Service ports with packet counts; 0: none are counted
	Shortcuts     bool // where supported, packets of pods' established connections bypass OVS

	forceClsact bool          // in tests: behave like a kernel without tcx
	sizes       bpf.Sizes     // in tests: small tables
	addressHold time.Duration // in tests: replaces the constant addressHold; 0: it does not
}

// Wiring is how the gateway is connected. Resolve completes it with facts from OVSDB.
type Wiring struct {
	Uplink    string         // the node's NIC
	Bridge    string         // gateway bridge in OVS, such as breth0
	Layout    verdict.Layout // how uplink, bridge and host are connected
	Backend   Backend        // see Defaulted
	VLAN      uint16         // except in Direct: the node's VLAN on the uplink, 0 = untagged
	Addresses []netip.Prefix // Dedicated: of the gateway router, at most one per family, IPv4 first
	NextHops  []netip.Addr   // of the gateway router; nil: those of the host's default routes
	Datapath  string         // ovs.DatapathSystem or ovs.DatapathNetdev
	Encap     netip.Prefix   // DatapathNetdev: tunnel address on the bridge
	Tunnel    netip.Addr     // configured tunnel address; the zero Addr: that of the node
}

// Cluster is the configuration of the cluster that the gateway serves.
type Cluster struct {
	SNATPorts cluster.PortRange // local ports of connections that OVN translates; reserved on the host
	NodePorts bool              // the gateway serves NodePorts
	// NodePortRange are the node ports of the API server. If NodePorts is set, the host does not
	// choose them for its own connections.
	NodePortRange cluster.PortRange
	ServiceCIDRs  []netip.Prefix
	ExternalIPs   []netip.Prefix // allowed ranges of Services' external IPs; nil: none
	TrustSlices   bool           // only the control plane can write EndpointSlices with its label
	Shares        service.Shares // budgets of Services and host ports
	PodCIDRs      []netip.Prefix // pod networks of the whole cluster
	PodTunnels    []netip.Prefix // to which pods may send tunnel packets of their own; nodes are excepted
	Local         bool           // local gateway mode
	NoGateway     bool           // the node has no gateway: its pods use those of other nodes
	BFD           bool           // packets of BFD sessions go to both sides
	Routable      bool           // pods are reachable from outside by their own addresses
	MTU           int            // of pods; 0 = the uplink's MTU minus the Geneve overhead
}

// Userspace reports whether ovs-vswitchd itself forwards packets.
func (w Wiring) Userspace() bool { return w.Datapath == ovs.DatapathNetdev }

// HostDevice returns the device that has the host's addresses, or "" in layout dedicated.
func (w Wiring) HostDevice() string {
	switch w.Layout {
	case verdict.Bridged:
		return w.Bridge
	case verdict.Dedicated:
		return ""
	default:
		return w.Uplink
	}
}

// Defaulted returns the settings with the default backend if they name none.
func (s Settings) Defaulted() Settings {
	s.Backend = cmp.Or(s.Backend, EBPF)
	return s
}

// Validate returns all conflicts between settings, joined.
func (s Settings) Validate() error {
	var err error
	if s.NoGateway && (s.Local || s.Layout != verdict.Direct) {
		err = errors.New("gateway mode none: layout and local mode need a gateway")
	}

	return errors.Join(err, s.Shares.Validate(), s.Wiring.Validate())
}

// Validate returns all conflicts between the settings of the wiring, joined.
func (w Wiring) Validate() error {
	var errs []error

	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if w.Layout > verdict.Dedicated {
		reject("gateway %s: want direct, bridged or dedicated", w.Layout)
	}

	if !slices.Contains([]Backend{"", EBPF, OpenFlow}, w.Backend) {
		reject("gateway backend %q: want ebpf or openflow", w.Backend)
	}

	if w.Backend == OpenFlow && w.Layout != verdict.Bridged {
		reject("gateway backend openflow: only in layout bridged, where OVS sees every packet")
	}

	if w.VLAN != 0 && w.Layout != verdict.Bridged && w.Layout != verdict.Dedicated {
		reject("gateway VLAN %d: not in layout direct; give the VLAN device as the uplink", w.VLAN)
	}

	if w.VLAN > 4094 { // 4095 is reserved (IEEE 802.1Q)
		reject("gateway VLAN %d: want 1..4094", w.VLAN)
	}

	if w.Datapath == ovs.DatapathNetdev && w.Layout == verdict.Bridged && w.Backend != OpenFlow {
		reject("layout bridged on the userspace datapath: OVS reads packets before eBPF sees them: use backend openflow or layout direct")
	}

	if w.Datapath == ovs.DatapathNetdev && w.Layout == verdict.Dedicated {
		reject("layout dedicated on the userspace datapath: tunnels need an address on a bridge; use layout direct")
	}

	return errors.Join(append(errs, w.validateAddresses())...)
}

// validateAddresses checks that the gateway router has addresses and next hops of its own in layout
// dedicated, and no addresses of its own in other layouts.
func (w Wiring) validateAddresses() error {
	if w.Layout != verdict.Dedicated {
		if len(w.Addresses) > 0 {
			return errors.New("gateway address: only in layout dedicated; other layouts use the node's address")
		}

		return nil
	}

	if len(w.Addresses) == 0 {
		return errors.New("gateway address: layout dedicated needs one, with its prefix length")
	}

	if len(w.NextHops) == 0 {
		return errors.New("gateway next hop: layout dedicated needs one")
	}

	for i, p := range w.Addresses {
		if !p.Addr().IsGlobalUnicast() {
			return fmt.Errorf("gateway address %s: must be reachable for other nodes", p)
		}

		sameFamily := func(o netip.Prefix) bool { return o.Addr().Is4() == p.Addr().Is4() }
		if slices.ContainsFunc(w.Addresses[:i], sameFamily) {
			return fmt.Errorf("gateway address %s: second address of the family", p)
		}
	}

	return nil
}
