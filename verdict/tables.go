package verdict

import (
	"fmt"
	"net/netip"
	"time"
)

// AddrKind is the owner of an address. An address of several kinds has the first of them in this
// order.
type AddrKind uint8

const (
	AddrNone   AddrKind = iota // in no table
	AddrHost                   // the host; OVN's router may share it
	AddrVIP                    // of a Service; a program of the host announces it
	AddrOVN                    // OVN alone, such as the gateway router's link-local address
	AddrPeer                   // another node
	AddrFormer                 // former host address; OVN may still translate to it
)

var addrKindNames = [...]string{
	AddrNone:   "none",
	AddrHost:   "host",
	AddrVIP:    "vip",
	AddrOVN:    "ovn",
	AddrPeer:   "peer",
	AddrFormer: "former",
}

func (k AddrKind) String() string {
	if int(k) < len(addrKindNames) {
		return addrKindNames[k]
	}

	return fmt.Sprintf("address kind %d", uint8(k))
}

// ServiceKey is a frontend: a NodePort on a node address, a hostPort, or a port of a VIP.
type ServiceKey struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

// ServiceOwner is the side that serves a frontend.
type ServiceOwner uint8

const (
	ServiceNone ServiceOwner = iota // not a frontend
	ServiceOVN                      // OVN's load balancers
	ServiceHost                     // a host socket: externalTrafficPolicy=Local, endpoint on this host's network
)

// NSKey is an exchange of OVN without ports: ICMP echo with its identifier, other protocols with ID
// 0. NS is short for north-south, as traffic between pods and the outside is called.
type NSKey struct {
	Remote netip.Addr
	Proto  uint8
	ID     uint16
}

// FragKey is a datagram. Proto is 0 for IPv6, where ID alone is unique.
type FragKey struct {
	Src, Dst netip.Addr
	Proto    uint8
	ID       uint32
}

// Fragmented is the state of a fragmented datagram.
type Fragmented struct {
	Owner Verdict       // Host, OVN, Both or Drop: verdict on the first fragment
	Seen  time.Duration // arrival of the first fragment
}

// FlowKey is a connection of OVN whose local port is not in the SNAT range, because it is older
// than the node's takeover from ovn-kubernetes or than a change of the range.
type FlowKey struct {
	Proto         uint8
	Remote, Local netip.AddrPort
}

// Socket is a host socket, or the pair of addresses of a packet to one. A socket without Remote
// listens (TCP) or is not connected (UDP).
type Socket struct {
	Proto         uint8 // TCP or UDP
	Remote, Local netip.AddrPort
}

// ConnectionState is the state of a connected socket.
type ConnectionState uint8

const (
	NotConnected ConnectionState = iota // no socket has the peer
	Connected                           // TCP in any other state, also in setup; UDP
	TimeWait                            // TCP in TIME_WAIT
)

// Tables is the dynamic state: Addrs, Services, Pods and the sockets follow from the node and the
// cluster, and Apply learns the others from packets. Times are those of the last use, on any
// monotonic clock. Table size limits are not modelled.
type Tables struct {
	Addrs    map[netip.Addr]AddrKind
	Services map[ServiceKey]ServiceOwner
	NS       map[NSKey]time.Duration // exchanges that OVN began
	Frags    map[FragKey]Fragmented
	Flows    map[FlowKey]time.Duration // the agent seeds them; packets only renew the time
	// HostProtos are the protocols without ports that the host uses, with ID 0. Remote may be
	// AnyRemote.
	HostProtos map[NSKey]bool
	// HostSocket reports whether a host socket owns a packet with these addresses. A TCP listener owns
	// only the ACK that answers its SYN cookie. Nil: the host has none.
	HostSocket func(Socket) bool
	// HostConnection returns the state of the host's connection with that pair of addresses.
	// Listeners and unconnected sockets have none. Nil: the host has none.
	HostConnection func(Socket) ConnectionState
	Past
}

// Past is the state of shortcuts past OVS: see Shortcut.
type Past struct {
	Shortcuts map[Tuple]Shortcut
	Epoch     uint32       // raised when flows or the configuration change; ends older shortcuts
	Pods      map[int]bool // interface indexes of pods' devices, at the host's end
	// HostPort reports whether a host socket may use a local port. Nil: none does.
	HostPort func(proto uint8, port uint16) bool
}

// Apply makes the changes of a decision taken at now. The maps that it changes must not be nil.
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

	if d.Seen != nil {
		s := t.Shortcuts[*d.Seen]
		s.Seen = true
		t.Shortcuts[*d.Seen] = s
	}

	if d.Ends != nil {
		s := t.Shortcuts[*d.Ends]
		s.Until = 0
		t.Shortcuts[*d.Ends] = s
	}

	if d.Closes != nil {
		s := t.Shortcuts[*d.Closes]
		s.Until, s.Seen = 0, false
		t.Shortcuts[*d.Closes] = s
	}
}

// Decision is the decision for a packet, with the resulting changes of the tables. A nil field
// changes nothing.
type Decision struct {
	Reason     Reason
	Learn      *NSKey   // exchange that OVN has begun: add or refresh
	LearnFlow  *FlowKey // connection in takeover that is in use: refresh
	Remember   *FragKey // datagram of a first fragment: add or replace
	RememberAs Verdict  // its owner: Host, OVN, Both or Drop

	Past *Shortcut // the packet is rewritten by it and does not go to OVS
	Seen *Tuple    // shortcut of a packet from the wire that goes to OVS, and so may renew the lease
	Ends *Tuple    // shortcut that ends with the packet
	// Closes is the shortcut of the other direction of a connection that the pod has ended.
	Closes *Tuple
}

// Verdict returns the verdict of the reason.
func (d Decision) Verdict() Verdict { return d.Reason.Verdict() }
