package campaign

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/verdict/corpus"
)

func testAttacker(seed uint64) *attacker {
	a := newAttacker(seed)
	a.own, a.to, a.tags = corpus.PeerMAC, corpus.NodeMAC, true
	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		a.sources = append(a.sources, f.Remote, f.Pod, f.ClusterIP, f.Masquerade)
		a.targets = append(a.targets, f.Node, f.Pod)
		a.hosts, a.peers = append(a.hosts, f.Node), append(a.peers, f.Remote)
	}
	a.claims = a.sources
	return a
}

// One seed makes the same frames again, so that a run can be repeated.
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

// Frames are of every kind that the campaign is for.
func TestFramesAreOfEveryKind(t *testing.T) {
	a := testAttacker(1)
	seen := map[string]bool{}
	protocols, sources := map[byte]bool{}, map[netip.Addr]bool{}
	for range 60000 {
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
			seen["ARP"] = true
		case kind == corpus.EtherIPv4:
			protocols[rest[9]] = true
			sources[netip.AddrFrom4([4]byte(rest[12:]))] = true
			seen["IPv4 options"] = seen["IPv4 options"] || rest[0] != 0x45
			seen["IPv4 fragment"] = seen["IPv4 fragment"] || binary.BigEndian.Uint16(rest[6:])&0x3fff != 0
		case kind == corpus.EtherIPv6:
			sources[netip.AddrFrom16([16]byte(rest[8:]))] = true
			seen["neighbour discovery"] = seen["neighbour discovery"] || rest[6] == corpus.ProtoICMPv6 && (rest[40] == 135 || rest[40] == 136)
			seen["extension header"] = seen["extension header"] || rest[6] == 60
			seen["IPv6 fragment"] = seen["IPv6 fragment"] || rest[6] == 44
		}
	}
	for _, kind := range []string{"VLAN 0", "VLAN", "double tag", "ARP", "IPv4 options", "IPv4 fragment", "neighbour discovery", "extension header", "IPv6 fragment"} {
		if !seen[kind] {
			t.Errorf("no frame of kind %q", kind)
		}
	}
	if len(protocols) != 256 || len(sources) < len(a.sources) {
		t.Errorf("%d protocols of 256, %d sources of %d", len(protocols), len(sources), len(a.sources))
	}
}
