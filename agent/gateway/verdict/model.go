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
)

// Direction is where a frame comes from.
type Direction uint8

const (
	FromWire Direction = iota // arrives at the uplink
	FromOVN                   // arrives at the gateway bridge's internal port
)

// Config is what is known of the node.
type Config struct {
	Connected              bool       // uplink and bridge are both known
	NodeMAC                MAC        // of the uplink and of the gateway router
	Node4, Node6           netip.Addr // the gateway router's addresses, which are the host's; zero: family off
	SNATFirst, SNATLast    uint16     // OVN's own local ports, both in it
	GenevePort             uint16
	EncapIP                netip.Addr // the userspace datapath's own tunnel address; zero: the kernel terminates tunnels
	ServiceCIDRs, PodCIDRs []netip.Prefix
}

// ServiceKey is a front end that OVN serves.
type ServiceKey struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

// NSKey is an exchange OVN began that has no ports to tell it by: ICMP echo by
// its identifier, other protocols with ID 0.
type NSKey struct {
	Remote netip.Addr
	Proto  uint8
	ID     uint16
}

// FragKey is a datagram. Proto is 0 with IPv6, where ID alone is unique.
type FragKey struct {
	Src, Dst netip.Addr
	Proto    uint8
	ID       uint32
}

// Socket is the addresses of a packet to a socket of the host.
type Socket struct {
	Proto         uint8 // TCP or UDP
	Remote, Local netip.AddrPort
}

// Tables is what is known besides. Times are when an entry was last used, on
// any clock that does not jump. How large a table may grow is not modelled.
type Tables struct {
	HostAddrs map[netip.Addr]bool
	Services  map[ServiceKey]bool
	NS        map[NSKey]time.Duration
	Frags     map[FragKey]time.Duration
	// HostSocket reports whether a socket of the host owns what goes to its
	// port, of those ports that are looked at. A TCP listener does not.
	HostSocket func(Socket) bool
}

// Apply makes t what it is after a decision taken at now.
func (t *Tables) Apply(d Decision, now time.Duration) {
	if d.Learn != nil {
		t.NS[*d.Learn] = now
	}
	if d.Remember != nil {
		t.Frags[*d.Remember] = now
	}
	if d.Forget != nil {
		delete(t.Frags, *d.Forget)
	}
}

// Decision is what becomes of a packet, and of the tables by it.
type Decision struct {
	Reason   Reason
	Learn    *NSKey   // enter or refresh
	Remember *FragKey // enter or refresh
	Forget   *FragKey // remove, if it is there
}

// Verdict is that of the reason.
func (d Decision) Verdict() Verdict { return d.Reason.Verdict() }

// Model decides. It changes neither part of it.
type Model struct {
	Config *Config
	Tables *Tables
}

// Decide says what becomes of a frame at time now, on the clock of the tables.
func (m Model) Decide(dir Direction, f Frame, now time.Duration) Decision {
	if dir == FromOVN {
		d := m.fromOVN(&f)
		if !m.Config.Connected {
			d.Reason = NoUplink
		}
		return d
	}
	d := m.fromWire(&f, now)
	if !m.Config.Connected && d.Verdict() != Host {
		d.Reason = PassUnconfigured
	}
	return d
}

// node reports whether a is one of the addresses that OVN's router shares with the host.
func (m Model) node(a netip.Addr) bool {
	return a.IsValid() && (a == m.Config.Node4 || a == m.Config.Node6)
}

func (m Model) host(a netip.Addr) bool { return m.node(a) || m.Tables.HostAddrs[a] }

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
// belongs to. Only echo identifiers are soon used again by others.
func (m Model) asked(p *Packet, now time.Duration) bool {
	last, ok := m.Tables.NS[exchange(p)]
	return ok && (!p.icmp() || now-last < EchoTimeout)
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
