package verdict

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

var (
	nodeMAC  = MAC{0x02, 0, 0, 0, 0, 0x11}
	peerMAC  = MAC{0x02, 0, 0, 0, 0, 0x99}
	otherMAC = MAC{0x02, 0, 0, 0, 0, 0x77}
	allMAC   = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	grLLA    = netip.MustParseAddr("fe80::ff:fe00:11") // modified EUI-64 of nodeMAC
)

const (
	now     = time.Hour
	host    = 22    // a port of the host's
	snat    = 50000 // a port of OVN's
	socket  = 50001 // one of OVN's that a UDP socket of the host has
	service = 30080 // a NodePort, TCP
	geneve  = 6081
)

// family makes the same packets in one IP version or the other.
type family struct {
	node, second, vip  netip.Addr // ours: shared with OVN, host's alone, OVN's alone
	remote, foreign    netip.Addr // not ours
	pod, clusterIP     netip.Addr
	encap              netip.Addr // of the userspace datapath
	v6                 bool
	icmp, echo, unreac uint8
	echoReply          uint8
}

var v4 = family{
	node: netip.MustParseAddr("172.30.0.11"), second: netip.MustParseAddr("172.30.0.111"), vip: netip.MustParseAddr("192.0.2.80"),
	remote: netip.MustParseAddr("198.51.100.1"), foreign: netip.MustParseAddr("172.30.0.12"),
	pod: netip.MustParseAddr("10.244.1.3"), clusterIP: netip.MustParseAddr("10.96.0.10"), encap: netip.MustParseAddr("172.30.1.11"),
	icmp: protoICMP, echo: icmp4Echo, echoReply: icmp4EchoReply, unreac: 3,
}

var v6 = family{
	node: netip.MustParseAddr("fd00:172:30::11"), second: netip.MustParseAddr("fd00:172:30::111"), vip: netip.MustParseAddr("2001:db8:80::80"),
	remote: netip.MustParseAddr("2001:db8:51::1"), foreign: netip.MustParseAddr("fd00:172:30::12"),
	pod: netip.MustParseAddr("fd00:10:244:1::3"), clusterIP: netip.MustParseAddr("fd00:10:96::a"), encap: netip.MustParseAddr("fd00:172:31::11"),
	v6: true, icmp: protoICMPv6, echo: icmp6Echo, echoReply: icmp6EchoReply, unreac: 1,
}

// model has a node with both families, and what OVN began of f a second ago.
func (f family) model() Model {
	cidr := netip.MustParsePrefix

	return Model{
		Config: &Config{
			Connected: true, NodeMAC: nodeMAC, Node4: v4.node, Node6: v6.node,
			SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, GenevePort: geneve,
			ServiceCIDRs: []netip.Prefix{cidr("10.96.0.0/16"), cidr("fd00:10:96::/112")},
			PodCIDRs:     []netip.Prefix{cidr("10.244.0.0/16"), cidr("fd00:10:244::/48")},
		},
		Tables: &Tables{
			Addrs:      map[netip.Addr]AddrKind{f.node: AddrHost, f.second: AddrHost, f.encap: AddrHost},
			Services:   map[ServiceKey]ServiceOwner{{f.node, protoTCP, service}: ServiceOVN, {f.vip, protoTCP, 443}: ServiceOVN},
			NS:         map[NSKey]time.Duration{{f.remote, f.icmp, 7}: now - time.Second, {f.remote, 47, 0}: now - time.Second, {f.remote, 112, 0}: now - time.Second},
			Frags:      map[FragKey]Fragmented{*f.datagram(9): {OVN, now - time.Second}, *f.datagram(7): {Host, now - time.Second}, *f.datagram(6): {Both, now - time.Second}},
			Flows:      map[FlowKey]time.Duration{},
			HostProtos: map[NSKey]bool{{AnyRemote(f.v6), 112, 0}: true},
			HostSocket: func(s Socket) bool {
				return s == Socket{protoUDP, netip.AddrPortFrom(f.remote, 53), netip.AddrPortFrom(f.node, socket)}
			},
		},
	}
}

// datagram is one of UDP, from remote to node.
func (f family) datagram(id uint32) *FragKey { return f.datagramOf(protoUDP, id) }

func (f family) datagramOf(proto uint8, id uint32) *FragKey {
	k := &FragKey{Src: f.remote, Dst: f.node, ID: id}
	if !f.v6 {
		k.Proto = proto
	}

	return k
}

// frame is p from the wire to the node.
func (f family) frame(p Packet) Frame {
	p.V6 = f.v6
	if !p.Src.IsValid() {
		p.Src = f.remote
	}

	if !p.Dst.IsValid() {
		p.Dst = f.node
	}

	proto := uint16(etherIPv4)
	if f.v6 {
		proto = etherIPv6
	}

	return Frame{Dst: nodeMAC, Src: peerMAC, Type: proto, Whole: true, IP: p}
}

// sent is p from OVN and the node to the wire.
func (f family) sent(p Packet) Frame {
	if !p.Src.IsValid() {
		p.Src = f.node
	}

	if !p.Dst.IsValid() {
		p.Dst = f.remote
	}

	frame := f.frame(p)
	frame.Dst, frame.Src = frame.Src, frame.Dst

	return frame
}

func (f family) udp(port uint16) Packet { return Packet{Proto: protoUDP, SrcPort: 53, DstPort: port} }

func (f family) tcp(port uint16, flags uint8) Packet {
	return Packet{Proto: protoTCP, SrcPort: 4000, DstPort: port, Flags: flags}
}

func (f family) ping(id uint16) Packet { return Packet{Proto: f.icmp, ICMPType: f.echo, EchoID: id} }

func (f family) pong(id uint16) Packet {
	return Packet{Proto: f.icmp, ICMPType: f.echoReply, EchoID: id}
}

// about is an error about a packet that the node sent.
func (f family) about(q Packet) Packet {
	q.V6 = f.v6
	if !q.Src.IsValid() {
		q.Src = f.node
	}

	q.Dst = f.remote

	return Packet{Src: f.foreign, Proto: f.icmp, ICMPType: f.unreac, Quote: &q}
}

type modelTest struct {
	name  string
	dir   Direction
	frame Frame
	want  Decision
}

// run decides every test.
func run(t *testing.T, m Model, tests []modelTest) {
	t.Helper()

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := m.Decide(tt.dir, tt.frame, now)
			if diff := cmp.Diff(tt.want, got, compareAddr); diff != "" {
				t.Errorf("decided by %s, want %s (-want +got):\n%s", got.Reason, tt.want.Reason, diff)
			}
		})
	}
}

var compareAddr = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

// with returns f changed.
func with(f Frame, change func(*Frame)) Frame {
	change(&f)
	return f
}

func TestTables_Apply(t *testing.T) {
	m := v4.model()
	k := NSKey{v4.foreign, protoICMP, 1}
	flow := FlowKey{protoUDP, netip.AddrPortFrom(v4.remote, 53), netip.AddrPortFrom(v4.node, snat)}
	m.Tables.Apply(Decision{Learn: &k, LearnFlow: &flow}, now)
	m.Tables.Apply(Decision{Remember: v4.datagram(1), RememberAs: OVN}, now)
	m.Tables.Apply(Decision{Remember: v4.datagram(9), RememberAs: Host}, now)

	if m.Tables.NS[k] != now || m.Tables.Flows[flow] != now || m.Tables.Frags[*v4.datagram(1)] != (Fragmented{OVN, now}) {
		t.Error("learned or remembered at another time")
	}

	if got := m.Tables.Frags[*v4.datagram(9)]; got.Owner != Host {
		t.Errorf("an id that is used again is still of %s", got.Owner)
	}
}

func TestMAC_LinkLocal(t *testing.T) {
	if got := nodeMAC.LinkLocal(); got != grLLA {
		t.Errorf("got %s, want %s", got, grLLA)
	}
}
