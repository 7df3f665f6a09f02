package verdict

import (
	"net/netip"
	"time"
)

// AddrKind is who has an address. An address that would be of several kinds is
// of the first.
type AddrKind uint8

const (
	AddrNone   AddrKind = iota // in no table
	AddrHost                   // the host, OVN's router may share it
	AddrVIP                    // of a Service; what announces it runs on the host
	AddrOVN                    // OVN alone, as an egress IP
	AddrPeer                   // another node
	AddrFormer                 // was the host's; OVN may still translate to it
)

var addrKindNames = [...]string{AddrNone: "none", AddrHost: "host", AddrVIP: "vip", AddrOVN: "ovn", AddrPeer: "peer", AddrFormer: "former"}

func (k AddrKind) String() string { return addrKindNames[k] }

// ServiceKey is a front end: a NodePort on a node address, a hostPort, a VIP's port.
type ServiceKey struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

// ServiceOwner is who serves a front end.
type ServiceOwner uint8

const (
	ServiceNone ServiceOwner = iota
	ServiceOVN               // OVN's load balancers
	ServiceHost              // a socket of the host: externalTrafficPolicy=Local, endpoint on this host's network
)

// NSKey is an exchange that has no ports to tell it by: ICMP echo by its
// identifier, other protocols with ID 0.
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

// Fragmented is what is known of a datagram.
type Fragmented struct {
	Owner Verdict       // Host, OVN, Both or Drop: where the first fragment went
	Seen  time.Duration // when
}

// FlowKey is a connection of OVN's that its local port does not tell.
type FlowKey struct {
	Proto         uint8
	Remote, Local netip.AddrPort
}

// Socket is the addresses of a packet to a socket of the host.
type Socket struct {
	Proto         uint8 // TCP or UDP
	Remote, Local netip.AddrPort
}

// Tables is what is known besides. Times are when an entry was last used, on
// any clock that does not jump. How large a table may grow is not modelled.
type Tables struct {
	Addrs    map[netip.Addr]AddrKind
	Services map[ServiceKey]ServiceOwner
	NS       map[NSKey]time.Duration // what OVN began
	Frags    map[FragKey]Fragmented
	Flows    map[FlowKey]time.Duration // seeded when a node was taken over
	// HostProtos are the protocols without ports that the host uses, ID 0. Remote
	// may be Anybody.
	HostProtos map[NSKey]bool
	// HostSocket reports whether a socket of the host owns what goes to its
	// port, of those ports that are gated. A TCP listener owns only the ACK that
	// answers its SYN cookie.
	HostSocket func(Socket) bool
}

// Apply makes t what it is after a decision taken at now.
func (t *Tables) Apply(d Decision, now time.Duration) {
	if d.Learn != nil {
		t.NS[*d.Learn] = now
	}
	if d.LearnFlow != nil {
		t.Flows[*d.LearnFlow] = now
	}
	if d.Remember != nil {
		t.Frags[*d.Remember] = Fragmented{Owner: d.RememberAs, Seen: now}
	}
}

// Decision is what becomes of a packet, and of the tables by it.
type Decision struct {
	Reason     Reason
	Learn      *NSKey   // enter or refresh
	LearnFlow  *FlowKey // enter or refresh
	Remember   *FragKey // enter or replace
	RememberAs Verdict  // its owner: Host, OVN, Both or Drop
}

// Verdict is that of the reason.
func (d Decision) Verdict() Verdict { return d.Reason.Verdict() }
