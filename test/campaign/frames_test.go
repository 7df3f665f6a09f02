package campaign

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

func testAttacker(seed uint64) *attacker {
	a := newAttacker(seed, magic)

	a.own, a.to, a.tags = corpus.PeerMAC, []verdict.MAC{corpus.NodeMAC}, true
	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		a.sources = append(a.sources, f.Remote, f.Pod, f.ClusterIP, f.Masquerade)
		a.targets = append(a.targets, f.Node, f.Pod)
		a.hosts, a.peers = append(a.hosts, f.Node), append(a.peers, f.Remote)
	}

	a.claims = a.sources

	return a
}

// A seed always generates the same frames, so that a run can be repeated.
func TestFramesRepeat(t *testing.T) {
	a, b, other := testAttacker(7), testAttacker(7), testAttacker(8)
	differ := false

	for range 2000 {
		frame := a.frame()
		if !bytes.Equal(frame, b.frame()) {
			t.Fatal("one seed makes two sequences")
		}

		differ = differ || !bytes.Equal(frame, other.frame())
	}

	if !differ {
		t.Error("two seeds make one sequence")
	}
}

// The frames cover every kind of the campaign.
func TestFramesAreOfEveryKind(t *testing.T) {
	a := testAttacker(1)
	seen := map[string]bool{}
	protocols, protocols6, sources := map[byte]bool{}, map[byte]bool{}, map[netip.Addr]bool{}
	ports, echoes := map[uint16]bool{}, map[uint16]bool{}
	icmp := func(v6 bool, l4 []byte) {
		family := map[bool]string{false: "IPv4", true: "IPv6"}[v6]
		switch kind := l4[0]; {
		case v6 && kind >= 1 && kind <= 4, !v6 && (kind == 3 || kind == 11 || kind == 12):
			seen[family+" error"] = true
		case v6 && (kind == 128 || kind == 129), !v6 && (kind == 0 || kind == 8):
			echoes[binary.BigEndian.Uint16(l4[4:])] = true
		case v6 && (kind == 135 || kind == 136):
			seen[map[byte]string{135: "solicitation", 136: "advertisement"}[kind]] = true
		}
	}

	for range 600000 {
		frame := a.frame()

		kind, rest := binary.BigEndian.Uint16(frame[12:]), frame[14:]
		switch {
		case kind == corpus.EtherVLAN && binary.BigEndian.Uint16(rest)&0xfff == 0:
			seen["VLAN 0"] = true
		case kind == corpus.EtherVLAN:
			seen["VLAN"] = true
		case kind == etherDouble:
			seen["double tag"] = true
		case kind == corpus.EtherARP:
			seen[map[byte]string{1: "ARP request", 2: "ARP reply"}[rest[7]]] = true
			seen["ARP by another"] = seen["ARP by another"] || netip.AddrFrom4([4]byte(rest[14:])) != a.sources[0]
		case kind == corpus.EtherIPv4:
			protocols[rest[9]] = true
			sources[netip.AddrFrom4([4]byte(rest[12:]))] = true
			seen["IPv4 options"] = seen["IPv4 options"] || rest[0] != 0x45
			fragment := binary.BigEndian.Uint16(rest[6:])&0x3fff != 0

			seen["IPv4 fragment"] = seen["IPv4 fragment"] || fragment
			switch l4 := rest[4*(rest[0]&0xf):]; {
			case fragment:
			case rest[9] == corpus.ProtoICMP && len(l4) >= 8:
				icmp(false, l4)
			case rest[9] == corpus.ProtoUDP:
				ports[binary.BigEndian.Uint16(l4)] = true
			}
		case kind == corpus.EtherIPv6:
			sources[netip.AddrFrom16([16]byte(rest[8:]))] = true

			protocols6[rest[6]] = true
			switch l4 := rest[40:]; rest[6] {
			case corpus.ProtoICMPv6:
				icmp(true, l4)
			case corpus.ProtoUDP:
				ports[binary.BigEndian.Uint16(l4)] = true
			}

			seen["extension header"] = seen["extension header"] || rest[6] == 60
			seen["IPv6 fragment"] = seen["IPv6 fragment"] || rest[6] == 44
		}
	}

	for _, kind := range []string{
		"VLAN 0", "VLAN", "double tag", "ARP request", "ARP reply", "ARP by another", "solicitation", "advertisement", "IPv4 error", "IPv6 error",
		"IPv4 options", "IPv4 fragment", "extension header", "IPv6 fragment",
	} {
		if !seen[kind] {
			t.Errorf("no frame of kind %q", kind)
		}
	}

	if len(protocols) != 256 || len(protocols6) != 256 || len(sources) < len(a.sources) {
		t.Errorf("%d and %d protocols of 256, %d sources of %d", len(protocols), len(protocols6), len(sources), len(a.sources))
	}

	for port := 49152; port <= 65535; port++ { // OVN's ports
		if !ports[uint16(port)] {
			t.Errorf("no datagram from port %d", port)
		}
	}

	if len(echoes) < 16384 { // as many as OVN's ports
		t.Errorf("%d identifiers of echoes", len(echoes))
	}
}
