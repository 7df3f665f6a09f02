package bpf

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// In struct __sk_buff: ingress_ifindex and hash.
const skbFrom, skbHash = 36, 68

// hasher runs a program before and after the agent's. The first sets the packet's hash, the second,
// on the bridge, records it.
type hasher struct{ given, seen *ebpf.Map }

func (n *node) hasher(t *testing.T) hasher {
	t.Helper()

	var maps [2]*ebpf.Map
	for i := range maps {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(func() { m.Close() })

		maps[i] = m
	}

	h := hasher{given: maps[0], seen: maps[1]}
	n.beside(t, n.uplink, ebpf.AttachTCXIngress, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMapValue(asm.R2, h.given.FD(), 0),
		asm.LoadMem(asm.R2, asm.R2, 0, asm.Word),
		asm.FnSetHash.Call(),
		asm.Mov.Imm(asm.R0, -1),
		asm.Return(),
	})
	n.beside(t, n.bridge, ebpf.AttachTCXEgress, asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, skbFrom, asm.Word),
		asm.JNE.Imm(asm.R2, int32(n.uplink), "out"), // the kernel's own
		asm.LoadMem(asm.R3, asm.R1, skbHash, asm.Word),
		asm.LoadMapValue(asm.R2, h.seen.FD(), 0),
		asm.StoreMem(asm.R2, 0, asm.R3, asm.Word),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("out"),
		asm.Return(),
	})

	return h
}

// beside attaches a program before those on a hook.
func (n *node) beside(t *testing.T, ifindex int, at ebpf.AttachType, insns asm.Instructions) {
	t.Helper()

	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: insns})
	if err != nil {
		t.Fatalf("%+v", err)
	}

	t.Cleanup(func() { p.Close() })
	n.must(t, func() error {
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: p, Attach: at, Anchor: link.Head()})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}

		return err
	})
}

// hash returns a frame's hash when OVN receives it.
func (h hasher) hash(t *testing.T, wire, ovn *tap, given uint32, frame []byte) (seen uint32) {
	t.Helper()

	if err := h.given.Put(uint32(0), given); err != nil {
		t.Fatal(err)
	}

	wire.send(t, frame)
	ovn.expect(t, frame)

	if err := h.seen.Lookup(uint32(0), &seen); err != nil {
		t.Fatal(err)
	}

	return seen
}

// TestGiveHash checks that packets to OVN have a hash: equal for all packets of a connection and
// different between connections. An existing hash is kept. Packets without ports are left to the
// kernel.
func TestGiveHash(t *testing.T) {
	needTCX(t)
	n := newNode(t)
	g := n.open(t)
	n.must(t, func() error { return errors.Join(g.AttachUplink(n.uplink), g.AttachBridge(n.bridge)) })

	h, wire, ovn := n.hasher(t), n.tap(t, "wire0"), n.tap(t, "ovn0")
	for _, f := range []family{v4, v6} {
		t.Run(f.name, func(t *testing.T) {
			seen := map[uint32]string{0: "none", 7: "given"}

			for _, tt := range []struct {
				name          string
				frame, second []byte
			}{
				{"udp", f.rx(f.foreign, f.node, protoUDP, udp(53, 50000, 'a')), f.rx(f.foreign, f.node, protoUDP, udp(53, 50000, 'b'))},
				{"next port", f.rx(f.foreign, f.node, protoUDP, udp(53, 50001, 'a')), f.rx(f.foreign, f.node, protoUDP, udp(53, 50001, 'b'))},
				{"next remote port", f.rx(f.foreign, f.node, protoUDP, udp(54, 50000, 'a')), f.rx(f.foreign, f.node, protoUDP, udp(54, 50000, 'b'))},
				{"next remote", f.rx(f.remote, f.node, protoUDP, udp(53, 50000, 'a')), f.rx(f.remote, f.node, protoUDP, udp(53, 50000, 'b'))},
				// By the full and the short path.
				{"tcp", f.rx(f.foreign, f.node, protoTCP, tcp(80, 50000, flagSYN|flagACK)), f.rx(f.foreign, f.node, protoTCP, tcp(80, 50000, flagACK, 'b'))},
			} {
				first := h.hash(t, wire, ovn, 0, tt.frame)
				if other, known := seen[first]; known {
					t.Errorf("%s has the hash %#x of %s", tt.name, first, other)
				}

				seen[first] = tt.name
				if got := h.hash(t, wire, ovn, 0, tt.second); got != first {
					t.Errorf("%s has the hashes %#x and %#x", tt.name, first, got)
				}

				if got := h.hash(t, wire, ovn, 7, tt.frame); got != 7 {
					t.Errorf("%s had a hash, and has another: %#x", tt.name, got)
				}
			}

			pong := f.rx(f.foreign, f.node, f.icmp, f.pong(77))
			ping := f.tx(f.node, f.foreign, f.icmp, f.ping(77))
			ovn.send(t, ping)
			wire.expect(t, ping)

			if got := h.hash(t, wire, ovn, 0, pong); got != 0 {
				t.Errorf("an answer to a ping has the hash %#x", got)
			}
		})
	}
}
