package verdict

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// What changes tables, and fields that Parse cannot make so. Package corpus has
// the cases of every rule.
func TestModel(t *testing.T) {
	for name, f := range map[string]family{"v4": v4, "v6": v6} {
		t.Run(name, func(t *testing.T) {
			m := f.model()
			run(t, m, slices.Concat(frameCases(f), portCases(f), fragmentCases(f), icmpCases(f), outCases(f)))

			if f.v6 {
				run(t, m, neighbourCases(f))
			} else {
				run(t, m, arpCases(f))
			}

			encap := f.model()
			encap.Config.EncapIP = f.encap
			run(t, encap, encapCases(f))
			taken, tests := flowCases(f)
			run(t, taken, tests)

			apart := f.model()
			apart.Config.Connected = false
			run(t, apart, apartCases(f))
		})
	}
}

func rx(name string, f Frame, r Reason) modelTest {
	return modelTest{name, FromWire, f, Decision{Reason: r}}
}

func tx(name string, f Frame, r Reason) modelTest {
	return modelTest{name, FromOVN, f, Decision{Reason: r}}
}

func frameCases(f family) []modelTest {
	ack := f.frame(f.tcp(snat, flagACK))

	return []modelTest{
		rx("tagged", with(ack, func(f *Frame) { f.Tagged = true }), VLAN),
		rx("other mac", with(ack, func(f *Frame) { f.Dst = otherMAC }), OtherMAC),
		rx("broadcast", with(ack, func(f *Frame) { f.Dst = allMAC }), Multicast),
		rx("lldp", with(ack, func(f *Frame) { f.Type = 0x88cc }), NotIP),
		rx("not well formed", with(ack, func(f *Frame) { f.Whole = false }), Malformed),
	}
}

func portCases(f family) []modelTest {
	to := func(dst netip.Addr, p Packet) Frame { p.Dst = dst; return f.frame(p) }
	sctp := Packet{Proto: protoSCTP, DstPort: snat}

	return []modelTest{
		rx("ssh", f.frame(f.tcp(host, flagACK)), Default),
		rx("below the range", f.frame(f.udp(49151)), Default),
		rx("start of the range", f.frame(f.udp(49152)), SNATPort),
		rx("end of the range", f.frame(f.udp(65535)), SNATPort),
		rx("syn", f.frame(f.tcp(snat, flagSYN)), SNATSyn),
		rx("syn ack", f.frame(f.tcp(snat, flagSYN|flagACK)), SNATPort),
		rx("no flags", f.frame(f.tcp(snat, 0)), SNATPort),
		rx("sctp", f.frame(sctp), SNATPort),
		rx("socket", f.frame(f.udp(socket)), HostSocket),
		rx("socket's port, other protocol", f.frame(f.tcp(socket, flagACK)), SNATPort),
		rx("range on a second address", to(f.second, f.udp(snat)), Default),
		rx("nodeport", f.frame(f.tcp(service, flagSYN)), Service),
		rx("nodeport, other protocol", f.frame(f.udp(service)), Default),
		rx("vip", to(f.vip, f.tcp(443, flagSYN)), Service),
		rx("vip, other port", to(f.vip, f.tcp(444, flagSYN)), NotOurs),
		rx("geneve", f.frame(f.udp(geneve)), Geneve),
		rx("geneve to an unknown address", to(f.foreign, f.udp(geneve)), NotOurs),
		rx("to an unknown address", to(f.foreign, f.udp(snat)), NotOurs),
		rx("gre ovn began", f.frame(Packet{Proto: 47}), ProtoNS),
		rx("vrrp", f.frame(Packet{Proto: 112}), ProtoHost),
		rx("vrrp of another peer", f.frame(Packet{Src: f.foreign, Proto: 112}), ProtoHost),
		rx("gre of another peer", f.frame(Packet{Src: f.foreign, Proto: 47}), Default),
		rx("esp", f.frame(Packet{Proto: 50}), Default),
		rx("esp to an unknown address", to(f.foreign, Packet{Proto: 50}), NotOurs),
	}
}

func fragmentCases(f family) []modelTest {
	part := func(place Position, id uint32, p Packet) Frame { p.Position, p.FragID = place, id; return f.frame(p) }
	later := Packet{Proto: protoUDP}

	return []modelTest{
		{"first of ovn's", FromWire, part(First, 1, f.udp(snat)), Decision{Reason: SNATPort, Remember: f.datagram(1), RememberAs: OVN}},
		{"first of both's", FromWire, part(First, 9, f.pong(7)), Decision{Reason: ICMPEchoReplyNS, Remember: f.datagramOf(f.icmp, 9), RememberAs: Both}},
		{"first of the host's", FromWire, part(First, 9, f.udp(53)), Decision{Reason: Default, Remember: f.datagram(9)}},
		{"first of geneve", FromWire, part(First, 9, f.udp(geneve)), Decision{Reason: Geneve, Remember: f.datagram(9)}},
		rx("later of ovn's", part(Later, 9, later), FragmentOVN),
		rx("later of the host's", part(Later, 7, later), Fragment),
		rx("later of both's", part(Later, 6, later), FragmentEarly),
		rx("later, first unknown", part(Later, 8, later), FragmentEarly),
		rx("later to an unknown address", part(Later, 9, Packet{Dst: f.foreign, Proto: protoUDP}), NotOurs),
	}
}

func icmpCases(f family) []modelTest {
	from := func(src netip.Addr, p Packet) Packet { p.Src = src; return p }
	reply := func(port uint16) Packet { return Packet{Proto: protoTCP, SrcPort: port, DstPort: 4000} }

	return []modelTest{
		rx("ping", f.frame(f.ping(7)), ICMPEcho),
		rx("reply to ovn", f.frame(f.pong(7)), ICMPEchoReplyNS),
		rx("reply to the host", f.frame(f.pong(8)), ICMPEchoReply),
		rx("reply to an unknown address", f.frame(Packet{Dst: f.foreign, Proto: f.icmp, ICMPType: f.echoReply}), NotOurs),
		rx("other message", f.frame(Packet{Proto: f.icmp, ICMPType: 140}), Default),
		rx("error about ovn's", f.frame(f.about(reply(snat))), ICMPErrorOVN),
		rx("error about a nodeport's", f.frame(f.about(reply(service))), ICMPErrorOVN),
		rx("error about the host's", f.frame(f.about(reply(host))), ICMPErrorHost),
		rx("error about a socket's", f.frame(f.about(Packet{Proto: protoUDP, SrcPort: socket, DstPort: 53})), ICMPErrorHost),
		rx("error about geneve", f.frame(f.about(Packet{Proto: protoUDP, SrcPort: snat, DstPort: geneve})), ICMPErrorHost),
		rx("error about ovn's ping", f.frame(f.about(f.ping(7))), ICMPErrorEcho),
		rx("error about the host's ping", f.frame(f.about(f.ping(8))), ICMPErrorHost),
		rx("error about ovn's gre", f.frame(f.about(Packet{Proto: 47})), ICMPErrorOVN),
		rx("error about another's", f.frame(f.about(from(f.foreign, reply(snat)))), ICMPErrorHost),
		rx("error about a later fragment", f.frame(f.about(Packet{Proto: protoUDP, Position: Later})), ICMPErrorHost),
		rx("error about nothing", f.frame(Packet{Proto: f.icmp, ICMPType: f.unreac}), ICMPErrorHost),
	}
}

func arpCases(f family) []modelTest {
	arp := func(dst MAC, op uint16, sender, target netip.Addr) Frame {
		return Frame{Dst: dst, Src: peerMAC, Type: etherARP, Whole: true, ARP: ARP{op, sender, target}}
	}

	return []modelTest{
		rx("request", arp(allMAC, 1, f.remote, f.node), ARPRequest),
		rx("request for a second address", arp(allMAC, 1, f.remote, f.second), ARPRequest),
		rx("request for another", arp(allMAC, 1, f.remote, f.foreign), ARPOther),
		rx("reply", arp(nodeMAC, 2, f.remote, f.node), ARPReply),
		rx("announcement", arp(allMAC, 1, f.foreign, f.foreign), ARPGratuitous),
		rx("announcement of the node's", arp(allMAC, 1, f.node, f.node), ARPRequest),
		rx("reverse request", arp(allMAC, 3, f.remote, f.node), ARPOther),
		rx("to another", arp(otherMAC, 2, f.remote, f.node), OtherMAC),
		tx("request", with(arp(allMAC, 1, f.node, f.foreign), func(f *Frame) { f.Src = nodeMAC }), NeighbourOut),
		tx("forged", arp(allMAC, 1, f.node, f.foreign), BadMAC),
	}
}

func neighbourCases(f family) []modelTest {
	nd := func(kind uint8, target netip.Addr) Packet {
		return Packet{Proto: protoICMPv6, ICMPType: kind, Target: target}
	}
	to := func(dst netip.Addr, p Packet) Frame { p.Dst = dst; return f.frame(p) }

	return []modelTest{
		rx("solicitation", f.frame(nd(135, f.node)), NDSolicit),
		rx("solicitation for ovn", f.frame(nd(135, grLLA)), NDSolicitOVN),
		rx("solicitation for another", f.frame(nd(135, f.foreign)), NDOther),
		rx("solicitation cut short", f.frame(nd(135, netip.Addr{})), Malformed),
		rx("advertisement", f.frame(nd(136, f.foreign)), NDAdvert),
		rx("router advertisement", f.frame(nd(134, netip.Addr{})), RouterAdvert),
		rx("router solicitation", f.frame(nd(133, netip.Addr{})), NDOther),
		rx("to ovn's link-local address", to(grLLA, f.tcp(179, flagSYN)), OVNAddress),
		rx("to an ipv4 address", to(v4.node, f.udp(snat)), Malformed),
		rx("error about an ipv4 address", f.frame(f.about(Packet{Src: v4.node, Proto: protoUDP, SrcPort: snat})), ICMPErrorHost),
		tx("solicitation", f.sent(nd(135, f.foreign)), NeighbourOut),
	}
}

func outCases(f family) []modelTest {
	to := func(p Packet) Frame { p.Dst = f.clusterIP; return f.sent(p) }
	from := func(src netip.Addr, p Packet) Frame { p.Src = src; return f.sent(p) }
	broken := func(f *Frame) { f.Whole = false }

	return []modelTest{
		tx("tcp", f.sent(f.tcp(80, flagSYN)), OutPlain),
		tx("forged", with(f.sent(f.tcp(80, flagSYN)), func(f *Frame) { f.Src = otherMAC }), BadMAC),
		tx("udp from a socket's port", f.sent(Packet{Proto: protoUDP, SrcPort: socket, DstPort: 53}), HostOwned),
		tx("udp from a socket's port, to a peer that it does not receive from", f.sent(Packet{Proto: protoUDP, SrcPort: socket, DstPort: 54}), OutPlain),
		tx("vrrp", f.sent(Packet{Proto: 112}), HostOwned),
		{"ping", FromOVN, f.sent(f.ping(1)), Decision{Reason: OutLearned, Learn: &NSKey{f.remote, f.icmp, 1}}},
		{"gre", FromOVN, f.sent(Packet{Proto: 47}), Decision{Reason: OutLearned, Learn: &NSKey{f.remote, 47, 0}}},
		tx("ping reply", f.sent(f.pong(1)), OutPlain),
		tx("ping of a vip", from(f.vip, f.ping(1)), OutPlain),
		tx("later fragment of a ping", f.sent(Packet{Proto: f.icmp, Position: Later}), OutPlain),
		tx("to a service", to(f.tcp(80, flagSYN)), SvcLeak),
		tx("pod", from(f.pod, f.tcp(80, flagSYN)), Unsnated),
		tx("pod, not well formed", with(from(f.pod, f.ping(1)), broken), Unsnated),
		tx("not well formed", with(f.sent(f.ping(1)), broken), OutPlain),
		tx("not ip", Frame{Src: nodeMAC, Type: 0x88cc}, OutPlain),
		tx("geneve, no tunnel of its own", from(f.encap, f.udp(geneve)), PodTunnel),
	}
}

// On the userspace datapath OVS tunnels from an address of its own.
func encapCases(f family) []modelTest {
	tunnel := Packet{Src: f.encap, Proto: protoUDP, SrcPort: snat, DstPort: geneve}
	forged := func(f *Frame) { f.Src = otherMAC }
	in, out := f.frame(f.udp(geneve)), with(f.sent(tunnel), forged)
	in.IP.Dst = f.encap

	return []modelTest{
		rx("geneve", in, GeneveOVN),
		rx("geneve to the node", f.frame(f.udp(geneve)), Geneve),
		rx("error about ovn's tunnel", f.frame(f.about(tunnel)), ICMPErrorOVN),
		tx("geneve", out, EncapOut),
		tx("other udp", with(out, func(f *Frame) { f.IP.DstPort++ }), BadMAC),
	}
}

// A connection of before a takeover is refreshed by use, also while there is no
// interface to hand it to.
func flowCases(f family) (taken Model, tests []modelTest) {
	m := f.model()
	m.Config.Takeover = true
	key := func(port uint16) *FlowKey {
		return &FlowKey{protoUDP, netip.AddrPortFrom(f.remote, 53), netip.AddrPortFrom(f.node, port)}
	}
	m.Tables.Flows[*key(host)] = now - 24*time.Hour

	return m, []modelTest{
		{"taken over", FromWire, f.frame(f.udp(host)), Decision{Reason: Takeover, LearnFlow: key(host)}},
	}
}

// Without an interface to hand to, everything stays with the host. What is
// learned does not depend on it.
func apartCases(f family) []modelTest {
	first := f.udp(snat)
	first.Position, first.FragID = First, 1

	return []modelTest{
		rx("ssh", f.frame(f.tcp(host, flagACK)), Default),
		rx("snat", f.frame(f.udp(snat)), PassUnconfigured),
		{"first fragment", FromWire, f.frame(first), Decision{Reason: PassUnconfigured, Remember: f.datagram(1), RememberAs: OVN}},
		tx("tcp", f.sent(f.tcp(80, flagSYN)), NoUplink),
		tx("forged", with(f.sent(f.udp(53)), func(f *Frame) { f.Src = otherMAC }), NoUplink),
	}
}

// What was learned is used for as long as the timeouts say.
func TestModel_timeouts(t *testing.T) {
	f := v4

	later := f.frame(Packet{Proto: protoUDP, Position: Later, FragID: 9})
	for _, tt := range []struct {
		name  string
		frame Frame
		after time.Duration // since the table's entry was used
		want  Reason
	}{
		{"echo in time", f.frame(f.pong(7)), EchoTimeout - 1, ICMPEchoReplyNS},
		{"echo too late", f.frame(f.pong(7)), EchoTimeout, ICMPEchoReply},
		{"protocol in time", f.frame(Packet{Proto: 47}), ProtoTimeout - 1, ProtoNS},
		{"protocol too late", f.frame(Packet{Proto: 47}), ProtoTimeout, Default},
		{"fragment in time", later, FragmentTimeout - 1, FragmentOVN},
		{"fragment too late", later, FragmentTimeout, FragmentEarly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := f.model()
			if got := m.Decide(FromWire, tt.frame, now-time.Second+tt.after); got.Reason != tt.want {
				t.Errorf("decided by %s, want %s", got.Reason, tt.want)
			}
		})
	}
}
