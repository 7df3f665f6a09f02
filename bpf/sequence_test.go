package bpf

import (
	"slices"
	"testing"
)

// one is a test of a single packet from the wire.
func one(name string, packet []byte, ret uint32, reason string) packetTest {
	return packetTest{name, []step{rx(packet, ret, reason)}}
}

// Effects of one packet on later ones. The corpus covers single packets.
func TestGateway_sequences(t *testing.T) {
	n := newNode(t)

	g := n.open(t)
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) {
			runTests(t, n, g, slices.Concat(learnTests(f), fragmentTests(f), gsoTests(f)))
		})
	}
}

func learnTests(f family) []packetTest {
	gre := []byte{0, 0, 8, 0}
	ping := f.tx(f.node, f.remote, f.icmp, f.ping(7))
	pong := func(id uint16) []byte { return f.rx(f.remote, f.node, f.icmp, f.pong(id)) }
	about := func(proto uint8, l4 []byte) []byte {
		return f.rx(f.foreign, f.node, f.icmp, f.icmpError(f.unreach, 1, f.ip(f.node, f.remote, proto, l4)))
	}

	return []packetTest{
		one("echo reply to the host", pong(7), retNext, "icmp_echo_reply"),
		{"ping from ovn", []step{
			tx(ping, retRedirect, "out_learned"),
			rx(pong(7), retNext, "icmp_echo_reply_ns"),
			rx(pong(8), retNext, "icmp_echo_reply"),
			rx(f.rx(f.foreign, f.node, f.icmp, f.pong(7)), retNext, "icmp_echo_reply"),
			tx(ping, retRedirect, "out_learned"),
			rx(about(f.icmp, f.ping(7)), retNext, "icmp_error_echo"),
			rx(about(f.icmp, f.ping(8)), retNext, "icmp_error_host"),
			rx(f.rx(f.remote, f.node, f.icmp, f.ping(7)), retNext, "icmp_echo"),
		}},
		{"gre from ovn", []step{
			tx(f.tx(f.node, f.remote, protoGRE, gre), retRedirect, "out_learned"),
			rx(f.rx(f.remote, f.node, protoGRE, gre), retRedirect, "proto_ns"),
			rx(f.rx(f.foreign, f.node, protoGRE, gre), retNext, "default"),
			rx(about(protoGRE, gre), retRedirect, "icmp_error_ovn"),
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
			rx(later(2), retNext, "fragment_early"),
		}},
		{"the host's, in order", []step{rx(first(1, 1024), retNext, "default"), rx(later(1), retNext, "fragment")}},
		{"late first", []step{
			rx(later(1), retNext, "fragment_early"),
			rx(first(1, 50000), retRedirect, "snat_port"),
			rx(later(1), retRedirect, "fragment_ovn"),
		}},
		{"an id used again by the host", []step{
			rx(first(1, 50000), retRedirect, "snat_port"),
			rx(first(1, 1024), retNext, "default"),
			rx(later(1), retNext, "fragment"),
		}},
		{"a service's", []step{rx(first(3, 30053), retRedirect, "service"), rx(later(3), retRedirect, "fragment_ovn")}},
		{"ping reply", []step{
			tx(f.tx(f.node, f.remote, f.icmp, f.ping(7)), retRedirect, "out_learned"),
			rx(f.fragment(f.icmp, 4, 0, true, f.pong(7)), retNext, "icmp_echo_reply_ns"),
			rx(f.fragment(f.icmp, 4, 16, false, rest), retNext, "fragment_early"),
		}},
		{"geneve", []step{rx(first(5, 6081), retNext, "geneve"), rx(later(5), retNext, "fragment")}},
	}
}

// A GSO packet counts as its segments.
func gsoTests(f family) []packetTest {
	payload := make([]byte, 900)

	return []packetTest{
		{"gso in", []step{{
			hook: uplinkIngress, packet: f.rx(f.remote, f.node, protoTCP, tcp(80, 22, flagACK, payload...)),
			ret: retNext, reason: "default", gso: 9, count: 9,
		}}},
		{"gso in the range", []step{{
			hook: uplinkIngress, packet: f.rx(f.remote, f.node, protoUDP, udp(80, 50000, payload...)),
			ret: retRedirect, reason: "snat_port", gso: 9, count: 9,
		}}},
		{"gso out", []step{{
			hook: bridgeIngress, packet: f.tx(f.node, f.remote, protoTCP, tcp(50000, 80, flagACK, payload...)),
			ret: retRedirect, reason: "out", gso: 9, count: 9,
		}}},
	}
}

// In local gateway mode the host fragments packets that are too long for the wire. For a GSO packet
// the length of one segment counts.
func TestGateway_oversized(t *testing.T) {
	n := newNode(t)
	c := n.config()
	c.Local, c.MTU = true, 400
	g := n.open(t, func(o *Options) { o.Config = c })

	for _, f := range []family{v4, v6} {
		reply := func(size int) []byte {
			return f.tx(f.vip, f.remote, protoTCP, tcp(443, 4000, flagACK, make([]byte, size)...))
		}
		header := len(reply(0)) - 14
		runTests(t, n, g, []packetTest{
			{f.name + " fits", []step{tx(reply(400-header), retRedirect, "out")}},
			{f.name + " one byte more", []step{tx(reply(401-header), retNext, "oversized")}},
			{f.name + " segments fit", []step{{
				hook: bridgeIngress, packet: reply(600), ret: retRedirect, reason: "out", gso: 2, gsoSize: uint32(400 - header), count: 2,
			}}},
			{f.name + " segments do not", []step{{
				hook: bridgeIngress, packet: reply(600), ret: retNext, reason: "oversized", gso: 2, gsoSize: uint32(401 - header), count: 2,
			}}},
		})
	}
}
