package corpus

import (
	"net/netip"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Source and destination MACs of frames.
var (
	NodeMAC   = verdict.MAC{0x02, 0, 0, 0, 0, 0x11} // of the uplink and of the gateway router
	PeerMAC   = verdict.MAC{0x02, 0, 0, 0, 0, 0x99} // of the next hop
	OtherMAC  = verdict.MAC{0x02, 0, 0, 0, 0, 0x77}
	Broadcast = verdict.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	Group4    = verdict.MAC{0x01, 0, 0x5e, 0, 0, 1}
	Group6    = verdict.MAC{0x33, 0x33, 0, 0, 0, 1}
)

var (
	routerLLA = netip.MustParseAddr("fe80::ff:fe00:11") // modified EUI-64 of NodeMAC
	hostLLA   = netip.MustParseAddr("fe80::11")
	allNodes  = netip.MustParseAddr("ff02::1")
	allHosts  = netip.MustParseAddr("224.0.0.1")
)

// Family contains the addresses of one IP version and its ICMP numbers.
type Family struct {
	Name       string
	Node       netip.Addr // shared by host and OVN
	Second     netip.Addr // host only
	Management netip.Addr // host only, in the routable pod subnet
	VIP        netip.Addr // of a Service
	Egress     netip.Addr // OVN only
	Peer       netip.Addr // of another node
	Remote     netip.Addr // has exchanges with this node
	Foreign    netip.Addr // has no exchange with this node
	Former     netip.Addr // former host address
	Pod        netip.Addr // behind NAT
	Routable   netip.Addr // of a pod without NAT
	ClusterIP  netip.Addr
	Masquerade netip.Addr // destination of the host's packets for the hairpin
	Encap      netip.Addr // tunnel address of the userspace datapath
	Inner
	messages
}

// Inner are addresses in the cluster's own networks.
type Inner struct {
	Join        netip.Addr // of the switch between routers
	Wide, Last  netip.Addr // in networks with fewer bits than an index has; Last is the last pod address
	Beside      netip.Addr // in no network, but with the first bits of one
	Neighbour   netip.Addr // on the uplink's own network, which lies inside an internal one
	NextHop     netip.Addr // also inside, as a single address
	InnerVIP    netip.Addr // of a Service
	InnerEgress netip.Addr // OVN only
	InnerPeer   netip.Addr // of another node
	InnerHost   netip.Addr // host only
}

// inner returns one of these addresses, selected by n.
func (i Inner) inner(n int) netip.Addr {
	return [...]netip.Addr{
		i.Join, i.Wide, i.Last, i.Beside, i.Neighbour, i.NextHop, i.InnerVIP, i.InnerEgress, i.InnerPeer, i.InnerHost,
	}[n]
}

// messages are the ICMP type numbers.
type messages struct {
	icmp, echo, echoReply           uint8
	unreachable, expired, parameter uint8
	tooBig, tooBigCode              uint8
}

// V4 and V6 have corresponding addresses.
var (
	V4 = Family{
		Name: "v4", Node: addr("172.30.0.11"), Second: addr("172.30.0.111"), Management: addr("10.244.7.2"),
		VIP: addr("192.0.2.80"), Egress: addr("172.30.0.200"), Peer: addr("172.30.0.12"),
		Remote: addr("198.51.100.1"), Foreign: addr("172.30.0.77"), Former: addr("172.30.0.10"), Pod: addr("10.244.1.3"), Routable: addr("10.244.7.3"),
		ClusterIP: addr("10.96.0.10"), Masquerade: addr("169.254.169.1"), Encap: addr("172.30.1.11"),
		Inner: Inner{
			Join: addr("100.64.0.3"), Wide: addr("11.15.255.1"), Last: addr("10.244.255.255"), Beside: addr("169.254.169.254"),
			Neighbour: addr("100.64.9.7"), NextHop: addr("10.96.77.1"), InnerVIP: addr("10.96.200.1"), InnerEgress: addr("10.96.201.1"),
			InnerPeer: addr("10.96.202.1"), InnerHost: addr("10.96.203.1"),
		},
		messages: messages{ProtoICMP, 8, 0, 3, 11, 12, 3, 4},
	}
	V6 = Family{
		Name: "v6", Node: addr("fd00:172:30::11"), Second: addr("fd00:172:30::111"), Management: addr("fd00:10:244:7::2"),
		VIP: addr("2001:db8:80::80"), Egress: addr("fd00:172:30::200"), Peer: addr("fd00:172:30::12"),
		Remote: addr("2001:db8:51::1"), Foreign: addr("fd00:172:30::77"), Former: addr("fd00:172:30::10"), Pod: addr("fd00:10:244:1::3"), Routable: addr("fd00:10:244:7::3"),
		ClusterIP: addr("fd00:10:96::a"), Masquerade: addr("fd69::1"), Encap: addr("fd00:172:31::11"),
		Inner: Inner{
			Join: addr("fd98::3"), Wide: addr("2001:db8:110f::1"), Last: addr("fd00:10:244:ffff::1"), Beside: addr("fd69::8"),
			Neighbour: addr("fd98::9:0:0:7"), NextHop: addr("fd00:10:96::7701"), InnerVIP: addr("fd00:10:96::200"), InnerEgress: addr("fd00:10:96::201"),
			InnerPeer: addr("fd00:10:96::202"), InnerHost: addr("fd00:10:96::203"),
		},
		messages: messages{ProtoICMPv6, 128, 129, 1, 3, 4, 2, 0},
	}
)

var addr = netip.MustParseAddr

func (f Family) v6() bool { return f.Node.Is6() }

// Rx returns a frame from the wire to the node's MAC.
func (f Family) Rx(src, dst netip.Addr, l4 L4) []byte {
	return IP{Src: src, Dst: dst, L4: l4}.Frame(NodeMAC, PeerMAC)
}

// Tx returns a frame from OVN or the host to the next hop.
func (f Family) Tx(src, dst netip.Addr, l4 L4) []byte {
	return IP{Src: src, Dst: dst, L4: l4}.Frame(PeerMAC, NodeMAC)
}

// In returns a frame from Remote to Node, Out one in the other direction.
func (f Family) In(l4 L4) []byte  { return f.Rx(f.Remote, f.Node, l4) }
func (f Family) Out(l4 L4) []byte { return f.Tx(f.Node, f.Remote, l4) }

// ICMP returns a message. word is the four bytes after the checksum.
func (f Family) ICMP(kind, code uint8, word uint32, body []byte) L4 {
	return L4{f.icmp, join([]byte{kind, code, 0, 0}, be32(word), body)}
}

// Ping and Pong return an echo request and reply.
func (f Family) Ping(id uint16) L4 { return f.ICMP(f.echo, 0, uint32(id)<<16|1, make([]byte, 8)) }

func (f Family) Pong(id uint16) L4 { return f.ICMP(f.echoReply, 0, uint32(id)<<16|1, make([]byte, 8)) }

// Unreachable, Expired, Parameter and TooBig return errors about a packet.
func (f Family) Unreachable(quote []byte) L4 { return f.ICMP(f.unreachable, 3, 0, quote) }
func (f Family) Expired(quote []byte) L4     { return f.ICMP(f.expired, 0, 0, quote) }
func (f Family) Parameter(quote []byte) L4   { return f.ICMP(f.parameter, 0, 0, quote) }
func (f Family) TooBig(quote []byte) L4      { return f.ICMP(f.tooBig, f.tooBigCode, 1400, quote) }

// Sent returns a packet from src to Remote, for use as a quote.
func (f Family) Sent(src netip.Addr, l4 L4) []byte {
	return IP{Src: src, Dst: f.Remote, L4: l4}.Bytes()
}

// Solicit, Advert and the other neighbour discovery functions are IPv6 only.
func Solicit(target netip.Addr) L4 { return discovery(135, 0, target.AsSlice()) }

// Advert sets the S flag if it answers a solicitation.
func Advert(target netip.Addr, solicited bool) L4 {
	flags := uint32(1 << 29) // override
	if solicited {
		flags |= 1 << 30
	}

	return discovery(136, flags, target.AsSlice())
}

func discovery(kind uint8, word uint32, body []byte) L4 {
	return L4{ProtoICMPv6, join([]byte{kind, 0, 0, 0}, be32(word), body)}
}

// ndFrame returns a neighbour discovery frame, with hop limit 255.
func ndFrame(dst, src verdict.MAC, p IP) []byte {
	p.TTL = 255
	return p.Frame(dst, src)
}
