package bpf

import (
	"net/netip"
	"slices"
	"testing"
)

// one is a test of a single packet from the wire.
func one(name string, packet []byte, ret uint32, reason string) packetTest {
	return packetTest{name, []step{rx(packet, ret, reason)}}
}

func TestUplink(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) {
			runTests(t, n, g, slices.Concat(portTests(f), icmpTests(f), protocolTests(f), fragmentTests(f)))
		})
	}
	t.Run("v4 only", func(t *testing.T) { runTests(t, n, g, ipv4Tests()) })
	t.Run("v6 only", func(t *testing.T) { runTests(t, n, g, ipv6Tests()) })
	t.Run("arp", func(t *testing.T) { runTests(t, n, g, arpTests()) })
	t.Run("nd", func(t *testing.T) { runTests(t, n, g, ndTests()) })
}

// wrongVersion makes the IP header contradict the Ethernet header.
func wrongVersion(packet []byte) []byte {
	packet[14] ^= 0x20
	return packet
}

func portTests(f family) []packetTest {
	to := func(dst netip.Addr, proto uint8, l4 []byte) []byte { return f.rx(f.remote, dst, proto, l4) }
	other := func(dst netip.Addr, l4 []byte) []byte {
		return ether(otherMAC, peerMAC, f.etherType(), f.ip(f.remote, dst, protoTCP, l4))
	}
	return []packetTest{
		one("ssh", to(f.node, protoTCP, tcp(4000, 22, flagACK)), retNext, "default"),
		one("dns", to(f.node, protoUDP, udp(53, 1024)), retNext, "default"),
		one("udp below the range", to(f.node, protoUDP, udp(53, 49151)), retNext, "default"),
		one("udp at the range's start", to(f.node, protoUDP, udp(53, 49152)), retRedirect, "snat_port"),
		one("udp at the range's end", to(f.node, protoUDP, udp(53, 65535)), retRedirect, "snat_port"),
		one("udp port 0", to(f.node, protoUDP, udp(53, 0)), retNext, "default"),
		one("tcp in the range", to(f.node, protoTCP, tcp(80, 50000, flagSYN|flagACK)), retRedirect, "snat_port"),
		one("tcp rst in the range", to(f.node, protoTCP, tcp(80, 50000, flagRST)), retRedirect, "snat_port"),
		one("tcp syn in the range", to(f.node, protoTCP, tcp(80, 50000, flagSYN)), retNext, "snat_syn"),
		one("sctp in the range", to(f.node, protoSCTP, sctp(80, 50000)), retRedirect, "snat_port"),
		one("sctp below the range", to(f.node, protoSCTP, sctp(80, 500)), retNext, "default"),
		one("range on the host's own address", to(f.second, protoTCP, tcp(80, 50000, flagACK)), retNext, "default"),
		one("nodeport tcp", to(f.node, protoTCP, tcp(4000, 30080, flagSYN)), retRedirect, "service"),
		one("nodeport udp", to(f.node, protoUDP, udp(4000, 30053)), retRedirect, "service"),
		one("nodeport of the other protocol", to(f.node, protoUDP, udp(4000, 30080)), retNext, "default"),
		one("nodeport on a second address", to(f.second, protoTCP, tcp(4000, 30081, flagSYN)), retRedirect, "service"),
		one("nodeport of another address", to(f.second, protoTCP, tcp(4000, 30080, flagSYN)), retNext, "default"),
		one("external address", to(f.vip, protoTCP, tcp(4000, 443, flagSYN)), retRedirect, "service"),
		one("external address, other port", to(f.vip, protoTCP, tcp(4000, 444, flagSYN)), retNext, "not_ours"),
		one("geneve to the node", to(f.node, protoUDP, udp(50000, 6081, make([]byte, 40)...)), retNext, "geneve"),
		one("geneve to a second address", to(f.second, protoUDP, udp(50000, 6081, make([]byte, 40)...)), retNext, "geneve"),
		one("geneve to nobody here", to(f.foreign, protoUDP, udp(50000, 6081)), retNext, "not_ours"),
		one("tcp to the geneve port", to(f.node, protoTCP, tcp(50000, 6081, flagACK)), retNext, "default"),
		one("to nobody here", to(f.foreign, protoTCP, tcp(80, 50000, flagACK)), retNext, "not_ours"),
		one("other mac", other(f.node, tcp(80, 50000, flagACK)), retNext, "other_mac"),
		one("broadcast frame", ether(allMAC, peerMAC, f.etherType(), f.ip(f.remote, f.node, protoTCP, tcp(80, 50000, flagACK))), retNext, "multicast"),
		one("multicast frame", ether(groupMAC, peerMAC, f.etherType(), f.ip(f.remote, f.node, protoUDP, udp(80, 50000))), retNext, "multicast"),
		one("wrong version", wrongVersion(to(f.node, protoTCP, tcp(80, 50000, flagACK))), retNext, "malformed"),
		one("cut short in tcp", to(f.node, protoTCP, tcp(80, 50000, flagACK)[:7]), retNext, "malformed"),
		{"gso", []step{{hook: uplinkIngress, packet: to(f.node, protoTCP, tcp(80, 22, flagACK, make([]byte, 300)...)), ret: retNext, reason: "default", gso: 3, count: 3}}},
		{"gso in the range", []step{{hook: uplinkIngress, packet: to(f.node, protoUDP, udp(80, 50000, make([]byte, 300)...)), ret: retRedirect, reason: "snat_port", gso: 3, count: 3}}},
	}
}

func icmpTests(f family) []packetTest {
	ping := f.tx(f.node, f.remote, f.icmp, f.ping(7))
	pong := func(id uint16) []byte { return f.rx(f.remote, f.node, f.icmp, f.pong(id)) }
	about := func(quoted []byte) []byte {
		return f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.unreach, 1, quoted))
	}
	quote := func(proto uint8, l4 []byte) []byte { return f.ip(f.node, f.remote, proto, l4) }
	return []packetTest{
		one("ping the host", f.rx(f.remote, f.node, f.icmp, f.ping(7)), retNext, "icmp_echo"),
		one("ping a second address", f.rx(f.remote, f.second, f.icmp, f.ping(7)), retNext, "icmp_echo"),
		one("ping nobody here", f.rx(f.remote, f.foreign, f.icmp, f.ping(7)), retNext, "not_ours"),
		one("reply to the host", pong(7), retNext, "icmp_echo_reply"),
		{"ping from ovn", []step{
			tx(ping, retRedirect, "out_learned"),
			rx(pong(7), retRedirect, "icmp_echo_reply_ns"),
			rx(pong(8), retNext, "icmp_echo_reply"),
			rx(f.rx(f.foreign, f.node, f.icmp, f.pong(7)), retNext, "icmp_echo_reply"),
			rx(f.rx(f.remote, f.second, f.icmp, f.pong(7)), retNext, "icmp_echo_reply"),
			tx(ping, retRedirect, "out_learned"),
			rx(about(quote(f.icmp, f.ping(7))), retRedirect, "icmp_error_ovn"),
			rx(about(quote(f.icmp, f.ping(8))), retNext, "icmp_error_host"),
			rx(f.rx(f.remote, f.node, f.icmp, f.ping(7)), retNext, "icmp_echo"),
		}},
		one("error about ovn's tcp", about(quote(protoTCP, tcp(50000, 80, flagSYN))), retRedirect, "icmp_error_ovn"),
		one("error about ovn's udp, eight bytes", about(quote(protoUDP, udp(50000, 80)[:8])), retRedirect, "icmp_error_ovn"),
		one("error about the host's tcp", about(quote(protoTCP, tcp(22, 4000, flagACK))), retNext, "icmp_error_host"),
		one("error about a nodeport's reply", about(quote(protoTCP, tcp(30080, 4000, flagACK))), retRedirect, "icmp_error_ovn"),
		one("error about geneve", about(quote(protoUDP, udp(50000, 6081))), retNext, "icmp_error_host"),
		one("error about another's packet", about(f.ip(f.foreign, f.remote, protoUDP, udp(50000, 80))), retNext, "icmp_error_host"),
		one("error that quotes too little", about(quote(protoUDP, udp(50000, 80)[:7])), retNext, "icmp_error_host"),
		one("error that quotes nothing", about(nil), retNext, "icmp_error_host"),
		one("error about an error", about(quote(f.icmp, f.icmpError(f.unreach, 1, nil))), retNext, "icmp_error_host"),
		one("too big for ovn", f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.tooBig, f.tooBigCode, quote(protoTCP, tcp(50000, 80, flagACK)))), retRedirect, "icmp_error_ovn"),
		one("too big for a vip", f.rx(f.foreign, f.vip, f.icmp, f.icmpError(f.tooBig, f.tooBigCode, f.ip(f.vip, f.remote, protoTCP, tcp(443, 4000, flagACK)))), retRedirect, "icmp_error_ovn"),
		one("time exceeded for ovn", f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.expire, 0, quote(protoUDP, udp(50000, 33434)))), retRedirect, "icmp_error_ovn"),
	}
}

func protocolTests(f family) []packetTest {
	gre := []byte{0, 0, 8, 0}
	return []packetTest{
		one("gre to the host", f.rx(f.remote, f.node, protoGRE, gre), retNext, "default"),
		one("gre to a second address", f.rx(f.remote, f.second, protoGRE, gre), retNext, "default"),
		one("gre to nobody here", f.rx(f.remote, f.foreign, protoGRE, gre), retNext, "not_ours"),
		{"gre from ovn", []step{
			tx(f.tx(f.node, f.remote, protoGRE, gre), retRedirect, "out_learned"),
			rx(f.rx(f.remote, f.node, protoGRE, gre), retRedirect, "proto_ns"),
			rx(f.rx(f.foreign, f.node, protoGRE, gre), retNext, "default"),
			rx(f.rx(f.remote, f.node, 50, gre), retNext, "default"),
			rx(f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.unreach, 0, f.ip(f.node, f.remote, protoGRE, gre))), retRedirect, "icmp_error_ovn"),
		}},
	}
}

func fragmentTests(f family) []packetTest {
	rest := make([]byte, 16)
	first := func(id, port uint16) []byte { return f.fragment(protoUDP, id, 0, true, udp(53, port, rest...)) }
	later := func(id uint16) []byte { return f.fragment(protoUDP, id, 24, false, rest) }
	return []packetTest{
		{"ovn's, in order", []step{
			rx(first(1, 50000), retRedirect, "snat_port"),
			rx(f.fragment(protoUDP, 1, 24, true, rest), retRedirect, "fragment_ovn"),
			rx(f.fragment(protoUDP, 1, 40, false, rest), retRedirect, "fragment_ovn"),
			rx(later(2), retNext, "fragment"),
		}},
		{"the host's, in order", []step{rx(first(1, 1024), retNext, "default"), rx(later(1), retNext, "fragment")}},
		{"late first", []step{rx(later(1), retNext, "fragment"), rx(first(1, 50000), retRedirect, "snat_port")}},
		{"an id used again by the host", []step{
			rx(first(1, 50000), retRedirect, "snat_port"),
			rx(first(1, 1024), retNext, "default"),
			rx(later(1), retNext, "fragment"),
		}},
		{"a service's", []step{rx(first(3, 30053), retRedirect, "service"), rx(later(3), retRedirect, "fragment_ovn")}},
		{"ping reply", []step{
			tx(f.tx(f.node, f.remote, f.icmp, f.ping(7)), retRedirect, "out_learned"),
			rx(f.fragment(f.icmp, 4, 0, true, f.pong(7)), retRedirect, "icmp_echo_reply_ns"),
			rx(f.fragment(f.icmp, 4, 16, false, rest), retRedirect, "fragment_ovn"),
		}},
		{"geneve", []step{rx(first(5, 6081), retNext, "geneve"), rx(later(5), retNext, "fragment")}},
		one("an error that quotes a later fragment", f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.expire, 1, f.fragment(protoUDP, 1, 24, false, rest)[14:])), retNext, "icmp_error_host"),
	}
}

func ipv4Tests() []packetTest {
	options := ip4Header{src: v4.remote, dst: v4.node, proto: protoUDP, options: []byte{1, 1, 1, 1}}
	short := v4.rx(v4.remote, v4.node, protoTCP, tcp(80, 50000, flagACK))
	short[14] = 0x44
	return []packetTest{
		one("options, in the range", ether(nodeMAC, peerMAC, 0x0800, ip4(options, udp(53, 50000))), retRedirect, "snat_port"),
		one("options, below the range", ether(nodeMAC, peerMAC, 0x0800, ip4(options, udp(53, 500))), retNext, "default"),
		one("header of four words", short, retNext, "malformed"),
		one("timestamp reply", v4.rx(v4.remote, v4.node, protoICMP, join([]byte{14, 0, 0, 0}, be32(0))), retNext, "default"),
		one("icmpv6 in ipv4", v4.rx(v4.remote, v4.node, protoICMPv6, v6.pong(7)), retNext, "default"),
		one("lldp", ether(groupMAC, peerMAC, 0x88cc, make([]byte, 50)), retNext, "not_ip"),
		one("header alone", ether(nodeMAC, peerMAC, 0x88b5, nil), retNext, "not_ip"),
	}
}

func ipv6Tests() []packetTest {
	l4 := udp(53, 50000)
	chain := func(n int) []byte {
		b := extension(protoUDP, 0, l4)
		for range n - 1 {
			b = extension(60, 1, b)
		}
		return v6.rx(v6.remote, v6.node, 60, b)
	}
	auth := join([]byte{protoUDP, 4}, make([]byte, 22), l4)
	mapped := netip.AddrFrom16(v4.node.As16())
	atomic := join([]byte{protoUDP, 0}, be16(0), be32(9), l4)
	return []packetTest{
		one("hop by hop, in the range", v6.rx(v6.remote, v6.node, 0, extension(protoUDP, 0, l4)), retRedirect, "snat_port"),
		one("routing, below the range", v6.rx(v6.remote, v6.node, 43, extension(protoUDP, 2, udp(53, 500))), retNext, "default"),
		one("authentication", v6.rx(v6.remote, v6.node, 51, auth), retRedirect, "snat_port"),
		one("atomic fragment", v6.rx(v6.remote, v6.node, 44, atomic), retRedirect, "snat_port"),
		one("seven headers", chain(7), retRedirect, "snat_port"),
		one("nine headers", chain(9), retNext, "malformed"),
		one("header cut short", v6.rx(v6.remote, v6.node, 0, []byte{protoUDP, 0, 0}), retNext, "malformed"),
		one("no next header", v6.rx(v6.remote, v6.node, 59, nil), retNext, "default"),
		one("ovn's link-local address", v6.rx(v6.remote, grLLA, protoTCP, tcp(80, 179, flagSYN)), retRedirect, "ovn_address"),
		one("to the node's ipv4 address", v6.rx(v6.remote, mapped, protoUDP, udp(53, 50000)), retNext, "malformed"),
		one("to a nodeport of the node's ipv4 address", v6.rx(v6.remote, mapped, protoTCP, tcp(4000, 30080, flagSYN)), retNext, "malformed"),
		one("error about a packet of the node's ipv4 address", v6.rx(v6.remote, v6.node, protoICMPv6, v6.icmpError(1, 0, v6.ip(mapped, v6.remote, protoUDP, udp(50000, 53)))), retNext, "icmp_error_host"),
		one("icmp in ipv6", v6.rx(v6.remote, v6.node, protoICMP, v4.pong(7)), retNext, "default"),
	}
}

func arpTests() []packetTest {
	arp := func(dst []byte, op uint16, spa, tpa netip.Addr) []byte {
		return ether(dst, peerMAC, 0x0806, arpPacket(op, spa, tpa))
	}
	none := netip.IPv4Unspecified()
	return []packetTest{
		one("request for the node", arp(allMAC, 1, v4.remote, v4.node), retNext, "arp_request"),
		one("unicast request for the node", arp(nodeMAC, 1, v4.remote, v4.node), retNext, "arp_request"),
		one("request for a second address", arp(allMAC, 1, v4.remote, v4.second), retNext, "arp_request"),
		one("request for the tunnel address", arp(allMAC, 1, v4.remote, encap), retNext, "arp_request"),
		one("probe for the node", arp(allMAC, 1, none, v4.node), retNext, "arp_request"),
		one("request for another", arp(allMAC, 1, v4.remote, v4.foreign), retNext, "arp_other"),
		one("request for a vip", arp(allMAC, 1, v4.remote, v4.vip), retNext, "arp_other"),
		one("reply", arp(nodeMAC, 2, v4.foreign, v4.node), retNext, "arp_reply"),
		one("broadcast reply", arp(allMAC, 2, v4.foreign, v4.foreign), retNext, "arp_reply"),
		one("gratuitous", arp(allMAC, 1, v4.foreign, v4.foreign), retNext, "arp_gratuitous"),
		one("somebody claims the node's address", arp(allMAC, 1, v4.node, v4.node), retNext, "arp_request"),
		one("reply to another", arp(otherMAC, 2, v4.foreign, v4.node), retNext, "other_mac"),
		one("reverse request", arp(allMAC, 3, v4.foreign, v4.node), retNext, "arp_other"),
		one("cut short", arp(allMAC, 1, v4.remote, v4.node)[:40], retNext, "malformed"),
	}
}

func ndTests() []packetTest {
	nd := func(dst []byte, to netip.Addr, body []byte) []byte {
		return ether(dst, peerMAC, 0x86dd, ip6(v6.foreign, to, protoICMPv6, body))
	}
	group := netip.MustParseAddr("ff02::1:ff00:11")
	return []packetTest{
		one("solicitation for the node", nd(groupMAC, group, neighbour(135, v6.node)), retNext, "nd_solicit"),
		one("unicast solicitation for the node", nd(nodeMAC, v6.node, neighbour(135, v6.node)), retNext, "nd_solicit"),
		one("solicitation for a second address", nd(groupMAC, group, neighbour(135, v6.second)), retNext, "nd_solicit"),
		one("solicitation for ovn's link-local address", nd(groupMAC, group, neighbour(135, grLLA)), retRedirect, "nd_solicit_ovn"),
		one("solicitation for another", nd(groupMAC, group, neighbour(135, v6.foreign)), retNext, "nd_other"),
		one("solicitation cut short", nd(groupMAC, group, neighbour(135, v6.node)[:20]), retNext, "malformed"),
		one("advertisement", nd(nodeMAC, v6.node, neighbour(136, v6.foreign)), retNext, "nd_advert"),
		one("advertisement to all", nd(groupMAC, netip.MustParseAddr("ff02::1"), neighbour(136, v6.foreign)), retNext, "nd_advert"),
		one("router advertisement", nd(groupMAC, netip.MustParseAddr("ff02::1"), neighbour(134, v6.foreign)), retNext, "router_advert"),
		one("router solicitation", nd(groupMAC, netip.MustParseAddr("ff02::2"), neighbour(133, v6.foreign)), retNext, "nd_other"),
		one("redirect", nd(nodeMAC, v6.node, neighbour(137, v6.foreign)), retNext, "nd_other"),
		one("multicast listener query", nd(groupMAC, netip.MustParseAddr("ff02::1"), neighbour(130, v6.foreign)), retNext, "multicast"),
		one("advertisement to another", nd(otherMAC, v6.node, neighbour(136, v6.foreign)), retNext, "other_mac"),
	}
}
