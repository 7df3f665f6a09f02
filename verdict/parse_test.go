package verdict

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func ether(proto uint16, payload ...[]byte) []byte {
	return join(nodeMAC[:], peerMAC[:], be16(proto), join(payload...))
}

// ip4 is a header of five words; frag are its flags and offset.
func ip4(proto uint8, frag uint16, payload ...[]byte) []byte {
	return join([]byte{0x45, 0, 0, 0}, be16(7), be16(frag), []byte{64, proto, 0, 0},
		v4.remote.AsSlice(), v4.node.AsSlice(), join(payload...))
}

func ip6(next uint8, payload ...[]byte) []byte {
	return join([]byte{0x60, 0, 0, 0, 0, 0, next, 64}, v6.remote.AsSlice(), v6.node.AsSlice(), join(payload...))
}

func ports(from, to uint16) []byte { return join(be16(from), be16(to), make([]byte, 16)) }

// extension is an IPv6 extension header of 8*(1+extra) bytes.
func extension(next uint8, extra int) []byte {
	return join([]byte{next, byte(extra)}, make([]byte, 6+8*extra))
}

func fragmentHeader(next uint8, flags uint16) []byte {
	return join([]byte{next, 0}, be16(flags), []byte{0, 0, 0, 9})
}

func TestParse(t *testing.T) {
	udp4 := Packet{Src: v4.remote, Dst: v4.node, Proto: protoUDP, FragID: 7, SrcPort: 53, DstPort: 50000}
	udp6 := Packet{V6: true, Src: v6.remote, Dst: v6.node, Proto: protoUDP, SrcPort: 53, DstPort: 50000}
	of := func(p Packet, change func(*Packet)) Packet { change(&p); return p }
	port := ports(53, 50000)
	options := ip4(protoUDP, 0, make([]byte, 4), port)
	options[0] = 0x46
	short, version := ip4(protoUDP, 0, port), ip4(protoUDP, 0, port)
	short[0], version[0] = 0x44, 0x65
	syn := ports(53, 50000)
	syn[13] = flagSYN

	error6 := join([]byte{1, 0, 0, 0}, make([]byte, 4))
	for _, tt := range []struct {
		name  string
		frame []byte
		whole bool
		want  Packet
	}{
		{"udp v4", ether(etherIPv4, ip4(protoUDP, 0, port)), true, udp4},
		{"udp v6", ether(etherIPv6, ip6(protoUDP, port)), true, udp6},
		{"eight bytes do", ether(etherIPv4, ip4(protoUDP, 0, port[:8])), true, udp4},
		{"seven do not", ether(etherIPv4, ip4(protoUDP, 0, port[:7])), false, of(udp4, func(p *Packet) { p.SrcPort, p.DstPort = 0, 0 })},
		{"options", ether(etherIPv4, options), true, udp4},
		{"header of four words", ether(etherIPv4, short), false, Packet{Src: v4.remote, Dst: v4.node}},
		{"wrong version", ether(etherIPv4, version), false, Packet{Src: v4.remote, Dst: v4.node}},
		{"header cut short", ether(etherIPv4, ip4(protoUDP, 0)[:19]), false, Packet{}},
		{"flags", ether(etherIPv4, ip4(protoTCP, 0, syn)), true, of(udp4, func(p *Packet) { p.Proto, p.Flags = protoTCP, flagSYN })},
		{"no flags", ether(etherIPv4, ip4(protoTCP, 0, syn[:13])), true, of(udp4, func(p *Packet) { p.Proto = protoTCP })},
		{"first v4", ether(etherIPv4, ip4(protoUDP, 0x2000, port)), true, of(udp4, func(p *Packet) { p.Position = First })},
		{"later v4", ether(etherIPv4, ip4(protoUDP, 0x2001)), true, Packet{Src: v4.remote, Dst: v4.node, Proto: protoUDP, FragID: 7, Position: Later}},
		{"do not fragment", ether(etherIPv4, ip4(protoUDP, 0x4000, port)), true, udp4},
		{"no ports", ether(etherIPv4, ip4(47, 0)), true, Packet{Src: v4.remote, Dst: v4.node, Proto: 47, FragID: 7}},
		{"first v6", ether(etherIPv6, ip6(44, fragmentHeader(protoUDP, 1), port)), true, of(udp6, func(p *Packet) { p.Position, p.FragID = First, 9 })},
		{"later v6", ether(etherIPv6, ip6(44, fragmentHeader(60, 9))), true, Packet{V6: true, Src: v6.remote, Dst: v6.node, Proto: 60, FragID: 9, Position: Later}},
		{"atomic", ether(etherIPv6, ip6(44, fragmentHeader(protoUDP, 6), port)), true, of(udp6, func(p *Packet) { p.FragID = 9 })},
		{"extension headers", ether(etherIPv6, ip6(0, extension(43, 0), extension(60, 2), extension(protoUDP, 1), port)), true, udp6},
		{"authentication", ether(etherIPv6, ip6(51, []byte{protoUDP, 1}, make([]byte, 10), port)), true, udp6},
		{"seven headers", ether(etherIPv6, ip6(60, bytes.Repeat(extension(60, 0), 6), extension(protoUDP, 0), port)), true, udp6},
		{"eight headers", ether(etherIPv6, ip6(60, bytes.Repeat(extension(60, 0), 7), extension(protoUDP, 0), port)), false, Packet{V6: true, Src: v6.remote, Dst: v6.node}},
		{"error", ether(etherIPv6, ip6(protoICMPv6, error6, ip6(protoUDP, port))), true, Packet{V6: true, Src: v6.remote, Dst: v6.node, Proto: protoICMPv6, ICMPType: 1, Quote: &udp6}},
		{"error behind a header", ether(etherIPv6, ip6(60, extension(protoICMPv6, 0), error6, ip6(protoUDP, port))), true, Packet{V6: true, Src: v6.remote, Dst: v6.node, Proto: protoICMPv6, ICMPType: 1, Quote: &udp6}},
		{"error about nothing", ether(etherIPv6, ip6(protoICMPv6, error6)), true, Packet{V6: true, Src: v6.remote, Dst: v6.node, Proto: protoICMPv6, ICMPType: 1}},
		{"echo", ether(etherIPv4, ip4(protoICMP, 0, []byte{8, 0, 0, 0, 1, 2, 0, 0})), true, Packet{Src: v4.remote, Dst: v4.node, Proto: protoICMP, FragID: 7, ICMPType: 8, EchoID: 0x102}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Parse(tt.frame)
			if got.Whole != tt.whole {
				t.Errorf("whole %t, want %t", got.Whole, tt.whole)
			}

			if got.Whole {
				tt.want.V6 = got.Type == etherIPv6
			}

			if diff := cmp.Diff(tt.want, got.IP, compareAddr); got.Whole && diff != "" {
				t.Errorf("packet (-want +got):\n%s", diff)
			}

			if got.IP.Src != tt.want.Src || got.IP.Dst != tt.want.Dst {
				t.Errorf("addresses %s, %s, want %s, %s", got.IP.Src, got.IP.Dst, tt.want.Src, tt.want.Dst)
			}
		})
	}
}

func TestParse_frames(t *testing.T) {
	arp := join(be16(1), be16(0x0800), []byte{6, 4}, be16(2), peerMAC[:], v4.remote.AsSlice(), make([]byte, 6), v4.node.AsSlice())

	solicit := join([]byte{135, 0, 0, 0}, make([]byte, 4), v6.node.AsSlice())
	if got, want := Parse(ether(etherARP, arp)).ARP, (ARP{2, v4.remote, v4.node}); got != want {
		t.Errorf("ARP %+v, want %+v", got, want)
	}

	if Parse(ether(etherARP, arp[:27])).Whole {
		t.Error("ARP of 27 bytes is well formed")
	}

	if f := Parse(ether(etherVLAN, []byte{0, 1, 8, 0}, ip4(protoUDP, 0, ports(1, 2)))); !f.Tagged || f.VID != 1 || !f.Whole || f.IP.DstPort != 2 {
		t.Errorf("tagged frame parsed as %+v", f)
	}

	if f := Parse(ether(etherVLAN, []byte{0xe0, 1, 0x81, 0}, ip4(protoUDP, 0, ports(1, 2)))); f.VID != 1 || f.Type != etherVLAN || f.Whole {
		t.Errorf("frame of two tags parsed as %+v", f)
	}

	if f := Parse(ether(etherQinQ, []byte{0, 1, 8, 0}, ip4(protoUDP, 0, ports(1, 2)))); !f.Tagged || f.VID != 1 || f.Whole {
		t.Errorf("frame with a service tag parsed as %+v", f)
	}

	if f := Parse(ether(etherVLAN, []byte{0, 1, 8, 0})); f.VID != 1 || f.Type != etherIPv4 || f.Length != 0 {
		t.Errorf("frame that ends with its tag parsed as %+v", f)
	}

	if f := Parse(ether(etherVLAN, []byte{0, 1, 8})); f.VID != 0 || f.Type != etherVLAN {
		t.Errorf("frame that ends in its tag parsed as %+v", f)
	}

	if got := Parse(ether(etherIPv6, ip6(protoICMPv6, solicit))).IP.Target; got != v6.node {
		t.Errorf("target %s, want %s", got, v6.node)
	}

	if got := Parse(ether(etherIPv6, ip6(protoICMPv6, solicit[:23]))).IP.Target; got.IsValid() {
		t.Errorf("target %s of a solicitation cut short", got)
	}

	if f := Parse(make([]byte, 13)); f != (Frame{}) {
		t.Errorf("thirteen bytes parsed as %+v", f)
	}
}

// Whatever arrives is parsed without a panic, and decided by a reason of its
// direction; what is appended to a whole frame changes nothing but a quote.
func FuzzParse(f *testing.F) {
	f.Add(ether(etherIPv4, ip4(protoTCP, 0, ports(80, 50000))))
	f.Add(ether(etherIPv4, ip4(protoUDP, 0x2000, ports(53, 50000))))
	f.Add(ether(etherIPv4, ip4(protoICMP, 0, []byte{3, 1, 0, 0, 0, 0, 0, 0}, ip4(protoUDP, 0, ports(50000, 53)))))
	f.Add(ether(etherIPv6, ip6(0, extension(44, 1), fragmentHeader(51, 1), extension(protoUDP, 3), ports(1, 2))))
	f.Add(ether(etherIPv6, ip6(protoICMPv6, []byte{1, 0, 0, 0, 0, 0, 0, 0}, ip6(60, extension(protoUDP, 0), ports(50000, 53)))))
	f.Add(ether(etherIPv6, ip6(protoICMPv6, []byte{135, 0, 0, 0, 0, 0, 0, 0}, v6.node.AsSlice())))
	f.Add(ether(etherARP, make([]byte, 28)))
	f.Add(ether(etherVLAN, make([]byte, 4)))

	m := v4.model()
	m.Config.EncapIP = netip.MustParseAddr("172.30.1.11")

	f.Fuzz(func(t *testing.T, b []byte) {
		frame := Parse(b)
		for _, dir := range []Direction{FromWire, FromOVN, FromHost} {
			d := m.Decide(dir, frame, now)
			if got := rules[d.Reason].Direction; got != dir {
				t.Errorf("%s decided what came from direction %d", d.Reason, dir)
			}

			if d.Remember != nil && dir != FromWire || d.Learn != nil && dir != FromOVN {
				t.Errorf("%s changes tables: %+v", d.Reason, d)
			}
		}

		if longer := Parse(append(bytes.Clone(b), 0)); frame.Whole && (!longer.Whole || longer.IP.Dst != frame.IP.Dst || longer.IP.DstPort != frame.IP.DstPort) {
			t.Errorf("one more byte makes %+v of %+v", longer, frame)
		}
	})
}
