package campaign

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// TestForger_packets: all packets, also those in fragments, are Geneve packets with an inner frame to
// the guarded pod. They are to all addresses.
func TestForger_packets(t *testing.T) {
	f := &forger{attacker: newAttacker(1, forgedMagic)}
	f.own, f.to = corpus.PeerMAC, []verdict.MAC{corpus.NodeMAC}
	f.sources = []netip.Addr{corpus.V4.Pod, corpus.V6.Pod}
	f.tunnels = []netip.Addr{corpus.V4.Node, corpus.V6.Node, corpus.V4.Management}
	f.inner = []inner{{corpus.PeerMAC, corpus.OtherMAC, corpus.V4.Pod, corpus.V4.Routable}}

	targets, marks := map[netip.Addr]int{}, map[string]int{}
	first, parts := []byte(nil), pairs{}

	for range 2000 {
		frame := f.frame()
		targets[destination(frame)]++

		l4, offset := frame[14+20:], int(binary.BigEndian.Uint16(frame[14+6:])&0x1fff)*8

		fragment := binary.BigEndian.Uint16(frame[14+6:])&0x3fff > 0
		if destination(frame).Is6() {
			l4, fragment, offset = frame[14+40:], frame[14+6] == 44, 0
			if fragment {
				offset, l4 = int(binary.BigEndian.Uint16(l4[2:])&0xfff8), l4[8:]
			}
		}

		switch completed := parts.completed(frame); {
		case fragment && offset == 0:
			if first = l4; completed {
				t.Fatal("the first fragment alone completes a packet")
			}

			continue
		case fragment:
			if !completed || offset != len(first) {
				t.Fatalf("a fragment at %d after %d bytes: complete %t", offset, len(first), completed)
			}

			l4 = append(bytes.Clone(first), l4...)
		}

		port, size := binary.BigEndian.Uint16(l4[2:]), int(binary.BigEndian.Uint16(l4[4:]))
		if port != genevePort || size != len(l4) {
			t.Fatalf("UDP port %d, size %d of %d", port, size, len(l4))
		}

		geneve := l4[8:]
		if geneve[0] != 2 || binary.BigEndian.Uint16(geneve[2:]) != 0x6558 {
			t.Fatalf("no Geneve header: %x", geneve)
		}

		if inner := geneve[16:]; destination(inner) != corpus.V4.Routable {
			t.Fatalf("the inner frame is to %s: %x", destination(inner), inner)
		}

		for _, mark := range []string{forgedMagic, firstMagic, lastMagic} {
			marks[mark] += bytes.Count(geneve, []byte(mark))
		}
	}

	if len(targets) != len(f.tunnels) {
		t.Errorf("packets to %v, want each of %v", targets, f.tunnels)
	}

	if marks[forgedMagic] == 0 || marks[firstMagic] == 0 || marks[firstMagic] != marks[lastMagic] {
		t.Errorf("marks %v, want whole packets and pairs of fragments", marks)
	}
}
