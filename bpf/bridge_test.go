package bpf

import (
	"net/netip"
	"testing"
)

func TestBridge(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) { runTests(t, n, g, bridgeTests(f)) })
	}
	t.Run("frames", func(t *testing.T) { runTests(t, n, g, bridgeFrameTests()) })
}

func sent(name string, packet []byte, ret uint32, reason string) packetTest {
	return packetTest{name, []step{tx(packet, ret, reason)}}
}

func bridgeTests(f family) []packetTest {
	from := func(src netip.Addr, proto uint8, l4 []byte) []byte { return f.tx(src, f.remote, proto, l4) }
	forged := func(l4 []byte) []byte {
		return ether(peerMAC, otherMAC, f.etherType(), f.ip(f.node, f.remote, protoTCP, l4))
	}
	return []packetTest{
		sent("tcp", from(f.node, protoTCP, tcp(50000, 80, flagSYN)), retRedirect, "out"),
		sent("udp", from(f.node, protoUDP, udp(50000, 53)), retRedirect, "out"),
		sent("sctp", from(f.node, protoSCTP, sctp(50000, 53)), retRedirect, "out"),
		sent("a vip's reply", from(f.vip, protoTCP, tcp(443, 4000, flagACK)), retRedirect, "out"),
		sent("ping", from(f.node, f.icmp, f.ping(7)), retRedirect, "out_learned"),
		sent("ping from another address", from(f.vip, f.icmp, f.ping(7)), retRedirect, "out"),
		sent("ping reply", from(f.node, f.icmp, f.pong(7)), retRedirect, "out"),
		sent("error", from(f.node, f.icmp, f.icmpError(f.unreach, 0, nil)), retRedirect, "out"),
		sent("gre", from(f.node, protoGRE, make([]byte, 8)), retRedirect, "out_learned"),
		sent("to a service address", f.tx(f.node, f.clusterIP, protoTCP, tcp(50000, 80, flagSYN)), retDrop, "svc_leak"),
		sent("ping to a service address", f.tx(f.node, f.clusterIP, f.icmp, f.ping(7)), retDrop, "svc_leak"),
		sent("a pod's own address, tcp", from(f.pod, protoTCP, tcp(4000, 80, flagSYN)), retDrop, "unsnated"),
		sent("a pod's own address, ping", from(f.pod, f.icmp, f.ping(7)), retDrop, "unsnated"),
		sent("pod to service", f.tx(f.pod, f.clusterIP, protoTCP, tcp(4000, 80, flagSYN)), retDrop, "svc_leak"),
		sent("forged mac", forged(tcp(50000, 80, flagSYN)), retDrop, "bad_mac"),
		sent("wrong version", wrongVersion(from(f.node, f.icmp, f.ping(7))), retRedirect, "out"),
		sent("a pod's own address, cut short in tcp", from(f.pod, protoTCP, tcp(4000, 80, flagSYN)[:7]), retDrop, "unsnated"),
		sent("a pod's own address, cut short in icmp", from(f.pod, f.icmp, f.ping(7)[:7]), retDrop, "unsnated"),
		sent("a pod's own address, wrong version", wrongVersion(from(f.pod, f.icmp, f.ping(7))), retDrop, "unsnated"),
		sent("a pod's own address, wrong version, tcp", wrongVersion(from(f.pod, protoTCP, tcp(4000, 80, flagSYN))), retDrop, "unsnated"),
		sent("to a service address, cut short in icmp", f.tx(f.node, f.clusterIP, f.icmp, f.ping(7)[:7]), retDrop, "svc_leak"),
		{"gso", []step{{hook: bridgeIngress, packet: from(f.node, protoTCP, tcp(50000, 80, flagACK, make([]byte, 900)...)), ret: retRedirect, reason: "out", gso: 9, count: 9}}},
	}
}

func bridgeFrameTests() []packetTest {
	later := ether(peerMAC, nodeMAC, 0x0800, ip4(ip4Header{src: v4.node, dst: v4.remote, proto: protoICMP, id: 1, frag: 3}, v4.ping(7)))
	return []packetTest{
		sent("arp request", ether(allMAC, nodeMAC, 0x0806, arpPacket(1, v4.node, v4.foreign)), retRedirect, "neighbour_out"),
		sent("arp with a forged mac", ether(allMAC, otherMAC, 0x0806, arpPacket(1, v4.node, v4.foreign)), retDrop, "bad_mac"),
		sent("unknown ethertype", ether(allMAC, nodeMAC, 0x88b5, nil), retRedirect, "out"),
		sent("later fragment of a ping", later, retRedirect, "out"),
		sent("ping behind extension headers", v6.tx(v6.node, v6.remote, 60, extension(protoICMPv6, 0, v6.ping(7))), retRedirect, "out_learned"),
		sent("solicitation", v6.tx(grLLA, v6.foreign, protoICMPv6, neighbour(135, v6.foreign)), retRedirect, "neighbour_out"),
		sent("geneve, no tunnel address of its own", v4.tx(encap, v4.remote, protoUDP, udp(50000, 6081)), retRedirect, "out"),
	}
}

// On the userspace datapath OVS tunnels from an address of its own.
func TestEncapAddress(t *testing.T) {
	n := newNode(t)
	c := n.config()
	c.EncapIP = encap
	g := n.open(t, func(o *Options) { o.Config = c })
	other := func(proto uint16, payload []byte) []byte { return ether(peerMAC, otherMAC, proto, payload) }
	tunnel := v4.ip(encap, v4.remote, protoUDP, udp(50000, 6081))
	errorAbout := func(src netip.Addr) []byte {
		return v4.rx(v4.foreign, src, protoICMP, v4.icmpError(3, 4, v4.ip(src, v4.remote, protoUDP, udp(50000, 6081))))
	}
	fragment := func(offset uint16, l4 []byte) []byte {
		return ether(nodeMAC, peerMAC, 0x0800, ip4(ip4Header{src: v4.remote, dst: encap, proto: protoUDP, id: 9, frag: offset}, l4))
	}
	runTests(t, n, g, []packetTest{
		one("geneve in", v4.rx(v4.remote, encap, protoUDP, udp(50000, 6081)), retRedirect, "geneve_ovn"),
		one("geneve to the node", v4.rx(v4.remote, v4.node, protoUDP, udp(50000, 6081)), retNext, "geneve"),
		one("ping the tunnel address", v4.rx(v4.remote, encap, protoICMP, v4.ping(1)), retNext, "icmp_echo"),
		one("tcp to the tunnel address", v4.rx(v4.remote, encap, protoTCP, tcp(80, 50000, flagACK)), retNext, "default"),
		one("arp reply with the tunnel address", ether(nodeMAC, peerMAC, 0x0806, arpPacket(2, v4.foreign, encap)), retNext, "arp_reply"),
		one("error about ovn's tunnel", errorAbout(encap), retRedirect, "icmp_error_ovn"),
		one("error about the node's tunnel", errorAbout(v4.node), retNext, "icmp_error_host"),
		{"geneve in fragments", []step{
			rx(fragment(0x2000, udp(50000, 6081, make([]byte, 8)...)), retRedirect, "geneve_ovn"),
			rx(fragment(2, make([]byte, 8)), retRedirect, "fragment_ovn"),
		}},
		sent("geneve out", other(0x0800, tunnel), retRedirect, "encap_out"),
		sent("geneve out, the node's mac", ether(peerMAC, nodeMAC, 0x0800, tunnel), retRedirect, "encap_out"),
		sent("other udp from the tunnel address", other(0x0800, v4.ip(encap, v4.remote, protoUDP, udp(50000, 6082))), retDrop, "bad_mac"),
		sent("arp from the tunnel address", other(0x0806, arpPacket(1, encap, v4.foreign)), retRedirect, "encap_out"),
		sent("arp from another address", other(0x0806, arpPacket(1, v4.foreign, encap)), retDrop, "bad_mac"),
		sent("snat", v4.tx(v4.node, v4.remote, protoTCP, tcp(50000, 80, flagACK)), retRedirect, "out"),
		sent("snat, v6", v6.tx(v6.node, v6.remote, protoTCP, tcp(50000, 80, flagACK)), retRedirect, "out"),
	})
}

// Without an interface to hand to, everything stays with the host.
func TestUnconfigured(t *testing.T) {
	n := newNode(t)
	both := n.config()
	for name, c := range map[string]Config{
		"no uplink": func() Config { c := both; c.Uplink = 0; return c }(),
		"no bridge": func() Config { c := both; c.Bridge = 0; return c }(),
	} {
		t.Run(name, func(t *testing.T) {
			g := n.open(t, func(o *Options) { o.Config = c })
			runTests(t, n, g, []packetTest{
				one("ssh", v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 22, flagACK)), retNext, "default"),
				one("snat", v4.rx(v4.remote, v4.node, protoTCP, tcp(80, 50000, flagACK)), retNext, "pass_unconfigured"),
				one("arp reply", ether(nodeMAC, peerMAC, 0x0806, arpPacket(2, v4.foreign, v4.node)), retNext, "pass_unconfigured"),
				sent("tcp", v4.tx(v4.node, v4.remote, protoTCP, tcp(50000, 80, flagSYN)), retDrop, "no_uplink"),
				sent("forged mac", ether(peerMAC, otherMAC, 0x0806, arpPacket(1, v4.node, v4.foreign)), retDrop, "no_uplink"),
			})
		})
	}
}

// A family without an address has nothing of OVN's.
func TestOneFamily(t *testing.T) {
	n := newNode(t)
	c := n.config()
	c.Node4, c.Node6 = netip.Addr{}, netip.Addr{}
	g := n.open(t, func(o *Options) { o.Config = c })
	runTests(t, n, g, []packetTest{
		one("v4", v4.rx(v4.remote, v4.node, protoTCP, tcp(80, 50000, flagACK)), retNext, "default"),
		one("v4 to 0.0.0.0, below the range", v4.rx(v4.remote, netip.IPv4Unspecified(), protoTCP, tcp(80, 22, flagACK)), retNext, "not_ours"),
		one("v4 to 0.0.0.0", v4.rx(v4.remote, netip.IPv4Unspecified(), protoTCP, tcp(80, 50000, flagACK)), retNext, "not_ours"),
		one("v6", v6.rx(v6.remote, v6.node, protoTCP, tcp(80, 50000, flagACK)), retNext, "default"),
		one("v6 to ::", v6.rx(v6.remote, netip.IPv6Unspecified(), protoTCP, tcp(80, 50000, flagACK)), retNext, "not_ours"),
	})
}
