package verdict

import (
	"net/netip"
	"time"
)

const (
	// EchoTimeout is for how long an echo reply follows its request.
	EchoTimeout = 60 * time.Second
	// FragmentTimeout is for how long later fragments follow their first.
	FragmentTimeout = 30 * time.Second
	// ProtoTimeout is for how long a protocol without ports follows OVN's last packet
	// to the peer: as long as Linux' conntrack holds one that it does not know.
	// Connections of before a takeover have no timeout here: the agent, which seeds
	// them, removes them.
	ProtoTimeout = 600 * time.Second

	bfdPort = 3784 // single hop (RFC 5881)
)

// Direction is where a frame comes from.
type Direction uint8

const (
	FromWire Direction = iota // arrives at the uplink
	FromOVN                   // OVN sends it to the uplink
	FromHost                  // the host sends it by the gateway bridge; only with the layout bridged
)

var directionNames = [...]string{FromWire: "from wire", FromOVN: "from OVN", FromHost: "from host"}

func (d Direction) String() string { return directionNames[d] }

// Config is what is known of the node.
type Config struct {
	Connected              bool       // uplink and bridge are both known
	NodeMAC                MAC        // of the uplink and of the gateway router
	Node4, Node6           netip.Addr // the gateway router's addresses, which are the host's; zero: family off
	SNATFirst, SNATLast    uint16     // OVN's own local ports, both in it
	GenevePort             uint16
	EncapIP                netip.Addr // the userspace datapath's own tunnel address; zero: the kernel terminates tunnels
	ServiceCIDRs, PodCIDRs []netip.Prefix
	RoutablePods           []netip.Prefix // this node's pod subnets that need no NAT
	Masquerade             []netip.Prefix // what the host sends there is for the hairpin
	// Internal are the cluster's own networks: what arrives from one or for one is dropped.
	Internal []netip.Prefix
	External []netip.Prefix // those inside Internal that are on the wire all the same
	Mode
}

// Mode is how the gateway works at present.
type Mode struct {
	VLAN     uint16 // the gateway's network has this tag; 0: no tag
	Local    bool   // local gateway mode: pods leave OVN by the management port
	BFD      bool
	InSync   bool // the southbound database knows this node's addresses
	Takeover bool // Tables.Flows has connections on ports outside the SNAT range
	MTU      int  // of the uplink, in local gateway mode; 0: not looked at
}

// Model decides. It changes neither part of it.
type Model struct {
	Config *Config
	Tables *Tables
}

// Decide says what becomes of a frame at time now, on the clock of the tables.
func (m Model) Decide(dir Direction, f Frame, now time.Duration) Decision {
	switch dir {
	case FromOVN:
		d := m.fromOVN(m.behindTag(f))
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
	return d
}

// node reports whether a is one of the addresses that OVN's router shares with the host.
func (m Model) node(a netip.Addr) bool {
	return a.IsValid() && (a == m.Config.Node4 || a == m.Config.Node6)
}

// kind says who has a.
func (m Model) kind(a netip.Addr) AddrKind {
	if m.node(a) {
		return AddrHost
	}
	if k := m.Tables.Addrs[a]; k != AddrNone {
		return k
	}
	if a == m.routerLinkLocal() {
		return AddrOVN
	}
	return AddrNone
}

func (m Model) host(a netip.Addr) bool { return m.kind(a) == AddrHost }

func (m Model) encap(a netip.Addr) bool { return a.IsValid() && a == m.Config.EncapIP }

func (m Model) snat(port uint16) bool { return m.Config.SNATFirst <= port && port <= m.Config.SNATLast }

// routerLinkLocal is the address OVN gives the router's port (RFC 4291, modified EUI-64).
func (m Model) routerLinkLocal() netip.Addr {
	mac := m.Config.NodeMAC
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2],
		11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5],
	})
}

// exchange is what p, whose source is the remote side, belongs to.
func exchange(p *Packet) NSKey {
	k := NSKey{Remote: p.Src, Proto: p.Proto}
	if p.icmp() {
		k.ID = p.EchoID
	}
	return k
}

// asked reports whether OVN began what p, whose source is the remote side,
// belongs to, and lately. Echo identifiers are sooner used again by others.
func (m Model) asked(p *Packet, now time.Duration) bool {
	last, ok := m.Tables.NS[exchange(p)]
	timeout := ProtoTimeout
	if p.icmp() {
		timeout = EchoTimeout
	}
	return ok && now-last < timeout
}

// flow is what p, whose source is the remote side, belongs to.
func flow(p *Packet) FlowKey {
	return FlowKey{
		Proto:  p.Proto,
		Remote: netip.AddrPortFrom(p.Src, p.SrcPort),
		Local:  netip.AddrPortFrom(p.Dst, p.DstPort),
	}
}

func datagram(p *Packet) *FragKey {
	k := &FragKey{Src: p.Src, Dst: p.Dst, ID: p.FragID}
	if !p.V6 {
		k.Proto = p.Proto
	}
	return k
}

// reversed turns p round: its destination is then the side that is ours.
func reversed(p *Packet) *Packet {
	q := *p
	q.Src, q.Dst, q.SrcPort, q.DstPort = p.Dst, p.Src, p.DstPort, p.SrcPort
	return &q
}
