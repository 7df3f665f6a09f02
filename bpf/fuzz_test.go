package bpf

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// For any frame in any layout, the program terminates, the packet keeps its length, and exactly one
// reason counts: the model's.
func FuzzPrograms(f *testing.F) {
	for _, fam := range []family{v4, v6} {
		f.Add(fam.rx(fam.remote, fam.node, protoTCP, tcp(80, 50000, flagACK)))
		f.Add(fam.rx(fam.remote, fam.node, protoUDP, udp(4000, 6081, make([]byte, 40)...)))
		f.Add(fam.rx(fam.remote, fam.node, fam.icmp, fam.icmpError(fam.unreach, 1, fam.ip(fam.node, fam.remote, protoTCP, tcp(50000, 80, flagACK)))))
		f.Add(fam.fragment(protoUDP, 1, 0, true, udp(53, 50000, make([]byte, 16)...)))
		f.Add(fam.fragment(protoUDP, 1, 24, false, make([]byte, 16)))
		f.Add(fam.tx(fam.node, fam.remote, fam.icmp, fam.ping(7)))
	}

	f.Add(ether(allMAC, peerMAC, 0x0806, arpPacket(1, v4.remote, v4.node)))
	f.Add(ether(groupMAC, peerMAC, 0x86dd, ip6(v6.foreign, v6.node, protoICMPv6, neighbour(135, v6.node))))
	f.Add(v6.rx(v6.remote, v6.node, 0, extension(60, 1, extension(protoUDP, 0, udp(1, 50000)))))
	f.Add(ether(nodeMAC, peerMAC, 0x8100, nil)) // a tag cut short

	rigs := [...]*rig{newRig(f, verdict.Direct), newRig(f, verdict.Bridged), newRig(f, verdict.Dedicated)}
	for _, r := range rigs {
		r.set(f, corpus.Cases()[0].Node)
	}

	tables := rigs[0].node.Model(monotonic(f)).Tables // of each layout the same
	f.Fuzz(func(t *testing.T, packet []byte) {
		if _, _, rest := corpus.Untag(packet); len(rest) < 14 || len(rest) > 1500 {
			t.Skip("not an Ethernet frame: the kernel refuses to run it")
		}

		fuzz(t, rigs[:], tables, packet)
	})
}

func fuzz(t *testing.T, rigs []*rig, tables *verdict.Tables, packet []byte) {
	frame := verdict.Parse(packet)

	for dir := verdict.FromWire; dir <= verdict.FromHost; dir++ {
		now := monotonic(t)

		want := verdict.Model{Config: &rigs[0].node.Config, Tables: tables}.Decide(dir, frame, now)
		for _, r := range rigs {
			if int(dir) >= len(r.g.hooks()) {
				continue // only bridged sees what the host sends
			}

			got := r.send(t, dir, packet)
			if errors.Is(got.err, unix.EINVAL) && len(packet) < 14+4+40 {
				t.Skip("IP header cut short: newer kernels refuse to run it")
			}

			if got.err != nil {
				t.Fatal(got.err)
			}

			expect := r.outcome(want.Reason)
			if got.reasons != want.Reason.String() || got.ret != expect.ret || got.mark != expect.mark {
				t.Errorf("%s, %s: %+v, the model says %s %+v", r.layout, dir, got, want.Reason, expect)
			}

			if _, _, rest := corpus.Untag(packet); len(got.out) != len(rest) {
				t.Errorf("%s, %s: changed the packet to %x", r.layout, dir, got.out)
			}
		}

		tables.Apply(want, now)
	}
}

// The short path must agree with the full path. Frames that differ only in an IP option or
// extension header take one path each.
func TestQuick_agreesWithFullPath(t *testing.T) {
	n := newNode(t)
	g := n.open(t)
	openGate(t, g, SocketKey{protoTCP, 50000}, SocketKey{protoUDP, 50001})

	for _, port := range []uint16{0, 1, 22, 6081, 30053, 30080, 30081, 49151, 49152, 50000, 50001, 60000, 65535} {
		for _, flags := range []int{flagACK, flagSYN, flagSYN | flagACK, -1} {
			proto, l4 := uint8(protoUDP), udp(4000, port, make([]byte, 12)...)
			if flags >= 0 {
				proto, l4 = protoTCP, tcp(4000, port, uint8(flags))
			}

			options := ip4Header{src: v4.remote, dst: v4.node, proto: proto, options: []byte{1, 1, 1, 1}}
			for name, pair := range map[string][2][]byte{
				"v4": {v4.rx(v4.remote, v4.node, proto, l4), ether(nodeMAC, peerMAC, 0x0800, ip4(options, l4))},
				"v6": {v6.rx(v6.remote, v6.node, proto, l4), v6.rx(v6.remote, v6.node, 60, extension(proto, 0, l4))},
			} {
				short, long := n.reason(t, g, pair[0]), n.reason(t, g, pair[1])
				if !cmp.Equal(short, long) {
					t.Errorf("%s protocol %d port %d: %v, with options %v", name, proto, port, short, long)
				}
			}
		}
	}
}

func TestQuick_agreesOnICMP(t *testing.T) {
	n := newNode(t)

	g := n.open(t)
	for _, f := range []family{v4, v6} {
		runStep(t, n, g, 0, tx(f.tx(f.node, f.remote, f.icmp, f.ping(7)), retRedirect, "out_learned"))

		for kind := range 256 {
			for _, id := range []uint16{7, 8} {
				l4 := join([]byte{uint8(kind), 0, 0, 0}, be16(id), make([]byte, 30))

				long := f.rx(f.remote, f.node, 60, extension(f.icmp, 0, l4))
				if f.node.Is4() {
					long = ether(nodeMAC, peerMAC, 0x0800, ip4(ip4Header{src: f.remote, dst: f.node, proto: f.icmp, options: []byte{1, 1, 1, 1}}, l4))
				}

				if diff := cmp.Diff(n.reason(t, g, long), n.reason(t, g, f.rx(f.remote, f.node, f.icmp, l4))); diff != "" {
					t.Errorf("%s type %d id %d (-with options +without):\n%s", f.name, kind, id, diff)
				}
			}
		}
	}
}

func (n *node) reason(t *testing.T, g *Gateway, packet []byte) map[string]uint64 {
	t.Helper()

	before := counts(t, n.pinDir)
	if _, _, err := n.send(g, step{hook: uplinkIngress, packet: packet}); err != nil {
		t.Fatal(err)
	}

	return deltas(before, counts(t, n.pinDir))
}
