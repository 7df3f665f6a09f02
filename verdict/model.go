package verdict

import (
	"net/netip"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

const (
	// EchoTimeout is how long an echo reply is matched to OVN's last request.
	EchoTimeout = 60 * time.Second
	// FragmentTimeout is how long later fragments are matched to the first one.
	FragmentTimeout = 30 * time.Second
	// ProtoTimeout is how long a protocol without ports is matched to OVN's last packet to the
	// peer. It equals the timeout of Linux' conntrack for unknown protocols. Connections from
	// before a takeover have no timeout here: the agent seeds them and removes them.
	ProtoTimeout = 600 * time.Second

	bfdPort = 3784 // single hop (RFC 5881)
)

// Direction is the origin of a frame.
type Direction uint8

const (
	FromWire Direction = iota // arrives at the uplink
	FromOVN                   // OVN's gateway router sends it to the uplink
	FromHost                  // the host sends it through the gateway bridge; only in layout bridged
	FromPod                   // a pod of this node sends it; only with shortcuts, see Model.FromPod
)

var directionNames = [...]string{
	FromWire: "from wire",
	FromOVN:  "from OVN",
	FromHost: "from host",
	FromPod:  "from pod",
}

func (d Direction) String() string { return directionNames[d] }

// Config is the configuration of the node. A nil list of prefixes matches nothing.
type Config struct {
	Connected              bool              // uplink and gateway bridge are both present
	NodeMAC                MAC               // of the uplink and of the gateway router
	Node4, Node6           netip.Addr        // addresses of the gateway router, shared with the host; zero: family off
	SNATPorts              cluster.PortRange // OVN's own local ports: the SNAT range
	GenevePort             uint16
	EncapIP                netip.Addr // tunnel address of the userspace datapath; zero: the kernel terminates tunnels
	ServiceCIDRs, PodCIDRs []netip.Prefix
	RoutablePods           []netip.Prefix // this node's pod subnets that need no NAT
	PodTunnels             []netip.Prefix // to which pods may send tunnel packets, except to nodes inside them
	Masquerade             []netip.Prefix // networks between host and OVN on a node, such as 169.254.169.0/29
	// Internal are the cluster's own networks: packets from or to them are dropped on arrival.
	Internal []netip.Prefix
	External []netip.Prefix // networks inside Internal that are on the wire nevertheless
	Mode
}

// Mode is the current mode of the gateway.
type Mode struct {
	VLAN     uint16 // tag of the gateway's network, 0 for none
	Local    bool   // local gateway mode: pods leave OVN through the management port
	BFD      bool
	InSync   bool // the southbound database has this node's addresses
	Takeover bool // Tables.Flows has connections on ports outside the SNAT range
	MTU      int  // of the uplink, for packets of OVN in local gateway mode; 0: not checked
}

// Model decides packets. It modifies neither Config nor Tables: Tables.Apply does.
type Model struct {
	Config *Config
	Tables *Tables
}

// Decide decides a frame of that origin at time now, on the clock of the tables. The rules of the
// origin give a reason. It is replaced in two cases: while uplink or bridge is missing, and if a
// packet for OVN has a valid shortcut. dir must not be FromPod, which has a method of that name.
func (m Model) Decide(dir Direction, f Frame, now time.Duration) Decision {
	switch dir {
	case FromOVN:
		d := m.fromOVN(&f)
		if !m.Config.Connected && d.Verdict() != Host {
			d.Reason = NoUplink
		}

		return d
	case FromHost:
		return Decision{Reason: m.fromHost(&f)}
	}

	d := m.fromWire(&f, now)
	if v := d.Verdict(); !m.Config.Connected && (v == OVN || v == Both) {
		d.Reason = PassUnconfigured
	}

	m.bypassOVS(&f, now, &d)

	return d
}

// isNode reports whether a is one of the addresses that OVN's router shares with the host.
func (m Model) isNode(a netip.Addr) bool {
	return a.IsValid() && (a == m.Config.Node4 || a == m.Config.Node6)
}

// kindOf returns the kind of a. Addresses that follow from Config need no entry in the tables.
func (m Model) kindOf(a netip.Addr) AddrKind {
	if m.isNode(a) {
		return AddrHost
	}

	if k := m.Tables.Addrs[a]; k != AddrNone {
		return k
	}

	if a == m.Config.NodeMAC.LinkLocal() {
		return AddrOVN
	}

	return AddrNone
}

// isHost reports whether the host has a; OVN's router may share it.
func (m Model) isHost(a netip.Addr) bool { return m.kindOf(a) == AddrHost }

// isEncap reports whether a is the tunnel address of the userspace datapath.
func (m Model) isEncap(a netip.Addr) bool { return a.IsValid() && a == m.Config.EncapIP }

func (m Model) inSNATRange(port uint16) bool { return m.Config.SNATPorts.Contains(port) }

// exchange returns the exchange that p belongs to, if p is of a protocol without ports. The source
// of p is the remote side.
func exchange(p *Packet) NSKey {
	k := NSKey{Remote: p.Src, Proto: p.Proto}
	if p.isICMP() {
		k.ID = p.EchoID
	}

	return k
}

// ovnHasBegun reports whether OVN recently began the exchange of p. The source of p is the remote
// side. Echo identifiers expire sooner, because other hosts reuse them.
func (m Model) ovnHasBegun(p *Packet, now time.Duration) bool {
	last, ok := m.Tables.NS[exchange(p)]

	timeout := ProtoTimeout
	if p.isICMP() {
		timeout = EchoTimeout
	}

	return ok && now-last < timeout
}

// Flow returns the connection that p belongs to, if p has ports. The source of p is the remote
// side.
func (p *Packet) Flow() FlowKey {
	return FlowKey{
		Proto:  p.Proto,
		Remote: netip.AddrPortFrom(p.Src, p.SrcPort),
		Local:  netip.AddrPortFrom(p.Dst, p.DstPort),
	}
}

// Datagram returns the datagram that p belongs to, if p is a fragment.
func (p *Packet) Datagram() *FragKey {
	k := &FragKey{Src: p.Src, Dst: p.Dst, ID: p.FragID}
	if !p.V6 {
		k.Proto = p.Proto
	}

	return k
}

// Reversed returns a copy with source and destination swapped: addresses and ports, nothing else.
func (p *Packet) Reversed() *Packet {
	reversed := *p
	reversed.Src, reversed.Dst = p.Dst, p.Src
	reversed.SrcPort, reversed.DstPort = p.DstPort, p.SrcPort

	return &reversed
}
