package corpus

import (
	"net/netip"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// Ports of the nodes.
const (
	genevePort = 6081
	bfdPort    = 3784
	vlan       = 100 // of the nodes with a gateway VLAN
	mtu        = 1500

	sshPort    = 22
	snatPort   = 50000 // OVN's
	udpSocket  = 50001 // used by OVN, and by a UDP socket of the host
	tcpSocket  = 50443 // used by OVN, and by a TCP listener of the host
	tcpClient  = 40000 // client connected to it, from the node's own address
	connected  = 40001 // port of the node's sockets that are connected to nodePort and to udpPeer
	udpPeer    = 30054 // peer of a UDP socket of the host on nodePortU
	staleGate  = 60000 // gated, without a socket
	takenPort  = 34567 // of OVN's connections from before the takeover
	nodePort   = 30080 // TCP and SCTP, OVN serves it
	nodePortU  = 30053 // UDP, OVN serves it
	nodePortV  = 30055 // UDP, OVN serves it; the host has an unconnected socket on it
	hostedPort = 30443 // TCP, the host serves it
	hostPort   = 50080 // TCP, OVN serves it, in the SNAT range
	vipPort    = 443
	vipHosted  = 8443 // TCP, the host serves it

	askedID   = 7 // echo requested by OVN
	expiredID = 9 // expired

	fragOVN, fragHost, fragOVNOld, fragHostOld, fragNone, fragBoth, fragDropped = 9, 10, 11, 12, 13, 14, 15
)

var prefix = netip.MustParsePrefix

// newNode returns a node with all table entries that the cases need, in both families.
func newNode(name string, change func(*Node)) *Node {
	n := &Node{
		Name: name,
		Config: verdict.Config{
			Connected: true, NodeMAC: NodeMAC, Node4: V4.Node, Node6: V6.Node,
			SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, GenevePort: genevePort,
			ServiceCIDRs: []netip.Prefix{prefix("10.96.0.0/16"), prefix("fd00:10:96::/112")},
			PodCIDRs:     []netip.Prefix{prefix("10.244.0.0/16"), prefix("fd00:10:244::/48")},
			RoutablePods: []netip.Prefix{prefix("10.244.7.0/24"), prefix("fd00:10:244:7::/64")},
			PodTunnels:   []netip.Prefix{prefix("172.30.0.0/24"), prefix("fd00:172:30::/64")},
			Masquerade:   []netip.Prefix{prefix("169.254.169.0/29"), prefix("fd69::/125")},
			Internal:     internal(),
			External: []netip.Prefix{
				prefix("10.244.7.0/24"), prefix("fd00:10:244:7::/64"), // the routable pods
				prefix("100.64.9.0/24"), prefix("fd98:0:0:0:9::/80"), // a network of the uplink
				prefix("10.96.77.1/32"), prefix("fd00:10:96::7701/128"), // a next hop
			},
			Mode: verdict.Mode{BFD: true, InSync: true, Takeover: true},
		},
		Addrs:      map[netip.Addr]verdict.AddrKind{hostLLA: verdict.AddrHost},
		Services:   make(map[verdict.ServiceKey]verdict.ServiceOwner),
		NS:         make(map[verdict.NSKey]time.Duration),
		Frags:      make(map[verdict.FragKey]verdict.Fragmented),
		Flows:      make(map[verdict.FlowKey]time.Duration),
		HostProtos: make(map[verdict.NSKey]bool),
		Gates:      []Gate{{ProtoTCP, staleGate}, {ProtoUDP, staleGate}},
	}
	for _, f := range []Family{V4, V6} {
		f.addresses(n)
		f.learned(n)
	}

	if change != nil {
		change(n)
	}

	return n
}

// internal returns networks of pods, Services, join switch and masquerade, of various lengths.
func internal() []netip.Prefix {
	return []netip.Prefix{
		prefix("10.244.0.0/16"), prefix("fd00:10:244::/48"),
		prefix("10.96.0.0/16"), prefix("fd00:10:96::/112"),
		prefix("100.64.0.0/16"), prefix("fd98::/64"),
		prefix("169.254.169.0/29"), prefix("fd69::/125"),
		prefix("11.0.0.0/12"), prefix("2001:db8:1100::/44"),
	}
}

func (f Family) addresses(n *Node) {
	for a, kind := range map[netip.Addr]verdict.AddrKind{
		f.Node: verdict.AddrHost, f.Second: verdict.AddrHost, f.Management: verdict.AddrHost, f.Encap: verdict.AddrHost,
		f.VIP: verdict.AddrVIP, f.Egress: verdict.AddrOVN, f.Peer: verdict.AddrPeer, f.Former: verdict.AddrFormer,
		f.InnerVIP: verdict.AddrVIP, f.InnerEgress: verdict.AddrOVN, f.InnerPeer: verdict.AddrPeer, f.InnerHost: verdict.AddrHost,
	} {
		n.Addrs[a] = kind
	}

	for _, a := range []netip.Addr{f.Node, f.Second} {
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoTCP, Port: nodePort}] = verdict.ServiceOVN
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoSCTP, Port: nodePort}] = verdict.ServiceOVN
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoUDP, Port: nodePortU}] = verdict.ServiceOVN
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoUDP, Port: nodePortV}] = verdict.ServiceOVN
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoTCP, Port: hostedPort}] = verdict.ServiceHost
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoTCP, Port: hostPort}] = verdict.ServiceOVN
	}

	for _, a := range []netip.Addr{f.VIP, f.InnerVIP} {
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoTCP, Port: vipPort}] = verdict.ServiceOVN
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoUDP, Port: vipPort}] = verdict.ServiceOVN
		n.Services[verdict.ServiceKey{Addr: a, Proto: ProtoTCP, Port: vipHosted}] = verdict.ServiceHost
	}

	n.Sockets = append(n.Sockets,
		verdict.Socket{Proto: ProtoUDP, Local: netip.AddrPortFrom(f.Node, udpSocket)},
		verdict.Socket{Proto: ProtoTCP, Local: netip.AddrPortFrom(f.Node, tcpSocket)},
		verdict.Socket{Proto: ProtoTCP, Local: netip.AddrPortFrom(f.Node, tcpSocket), Remote: netip.AddrPortFrom(f.Node, tcpClient)},
		verdict.Socket{Proto: ProtoTCP, Local: netip.AddrPortFrom(f.Node, nodePort)}, // from before the Service
		verdict.Socket{Proto: ProtoTCP, Local: netip.AddrPortFrom(f.Node, nodePort), Remote: netip.AddrPortFrom(f.Node, connected)},
		verdict.Socket{Proto: ProtoUDP, Local: netip.AddrPortFrom(f.Node, nodePortU), Remote: netip.AddrPortFrom(f.Node, udpPeer)},
		verdict.Socket{Proto: ProtoUDP, Local: netip.AddrPortFrom(f.Node, nodePortV)},
	)
}

func (f Family) learned(n *Node) {
	n.NS[verdict.NSKey{Remote: f.Remote, Proto: f.icmp, ID: askedID}] = time.Second
	n.NS[verdict.NSKey{Remote: f.Remote, Proto: f.icmp, ID: expiredID}] = 2 * verdict.EchoTimeout
	n.NS[verdict.NSKey{Remote: f.Remote, Proto: ProtoGRE}] = verdict.ProtoTimeout / 2
	n.NS[verdict.NSKey{Remote: f.Remote, Proto: ProtoPIM}] = 2 * verdict.ProtoTimeout
	n.NS[verdict.NSKey{Remote: f.Remote, Proto: ProtoESP}] = time.Second

	n.HostProtos[verdict.NSKey{Remote: f.Remote, Proto: ProtoESP}] = true
	for _, proto := range []uint8{ProtoVRRP, ProtoOSPF} { // raw sockets
		n.NS[verdict.NSKey{Remote: f.Remote, Proto: proto}] = time.Second
		n.HostProtos[verdict.NSKey{Remote: verdict.AnyRemote(f.v6()), Proto: proto}] = true
	}

	n.Frags[f.datagram(fragOVN)] = verdict.Fragmented{Owner: verdict.OVN, Seen: time.Second}
	n.Frags[f.datagram(fragHost)] = verdict.Fragmented{Owner: verdict.Host, Seen: time.Second}
	n.Frags[f.datagram(fragBoth)] = verdict.Fragmented{Owner: verdict.Both, Seen: time.Second}
	n.Frags[f.datagram(fragOVNOld)] = verdict.Fragmented{Owner: verdict.OVN, Seen: 2 * verdict.FragmentTimeout}
	n.Frags[f.datagram(fragHostOld)] = verdict.Fragmented{Owner: verdict.Host, Seen: 2 * verdict.FragmentTimeout}

	inner := f.datagram(fragDropped)
	inner.Dst = f.InnerVIP
	n.Frags[inner] = verdict.Fragmented{Owner: verdict.Drop, Seen: time.Second}

	for _, proto := range []uint8{ProtoTCP, ProtoUDP, ProtoSCTP} {
		n.Flows[f.flow(proto, 443, takenPort)] = time.Hour // has no timeout
	}

	for _, port := range []uint16{udpSocket, snatPort, staleGate} { // irrelevant inside the range
		n.Flows[f.flow(ProtoUDP, 53, port)] = time.Second
	}
}

// datagram returns the key of a UDP datagram from Remote to Node.
func (f Family) datagram(id uint32) verdict.FragKey {
	k := verdict.FragKey{Src: f.Remote, Dst: f.Node, ID: id}
	if !f.v6() {
		k.Proto = ProtoUDP
	}

	return k
}

// flow returns the key of a connection between Remote and Node.
func (f Family) flow(proto uint8, remote, local uint16) verdict.FlowKey {
	return verdict.FlowKey{Proto: proto, Remote: netip.AddrPortFrom(f.Remote, remote), Local: netip.AddrPortFrom(f.Node, local)}
}
