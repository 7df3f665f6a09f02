package bpf

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
)

// Return values of programs, from linux/bpf.h and linux/pkt_cls.h.
const (
	retNext     = 0xffffffff // TCX_NEXT: to the host
	retDrop     = 2
	retRedirect = 7
)

// step is one packet with all expected results.
type step struct {
	hook   string
	packet []byte
	ret    uint32
	reason string
	gso    uint32 // segments; 0: not a GSO packet
	count  uint64 // packets counted, where it is not 1

	gsoSize uint32 // of a segment's payload, where it is not 100
}

func rx(packet []byte, ret uint32, reason string) step {
	return step{hook: uplinkIngress, packet: packet, ret: ret, reason: reason}
}

func tx(packet []byte, ret uint32, reason string) step {
	return step{hook: bridgeIngress, packet: packet, ret: ret, reason: reason}
}

type packetTest struct {
	name  string
	steps []step
}

// runTests sends every test's packets through g. Learned state is empty at the start of each test.
func runTests(t *testing.T, n *node, g *Gateway, tests []packetTest) {
	t.Helper()

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			forget(t, g)

			for i, s := range tt.steps {
				runStep(t, n, g, i, s)
			}
		})
	}
}

func runStep(t *testing.T, n *node, g *Gateway, i int, s step) {
	t.Helper()
	before := counts(t, n.pinDir)

	ret, out, err := n.send(g, s)
	if err != nil {
		t.Fatal(err)
	}

	if ret != s.ret {
		t.Errorf("step %d: returned %d, want %d", i, int32(ret), int32(s.ret))
	}

	if !bytes.Equal(out, s.packet) {
		t.Errorf("step %d: packet changed:\n%x\n%x", i, s.packet, out)
	}

	want := map[string]uint64{s.reason: max(s.count, 1)}
	if diff := cmp.Diff(want, deltas(before, counts(t, n.pinDir))); diff != "" {
		t.Errorf("step %d: reasons (-want +got):\n%s", i, diff)
	}
}

// send runs the program of a hook on a packet that arrives at its interface.
func (n *node) send(g *Gateway, s step) (ret uint32, out []byte, err error) {
	prog, ifindex := g.progs[s.hook], n.uplink
	if s.hook == bridgeIngress {
		ifindex = n.bridge
	}

	if s.gsoSize == 0 && s.gso > 0 {
		s.gsoSize = 100
	}

	opts := ebpf.RunOptions{
		Data:    s.packet,
		DataOut: make([]byte, len(s.packet)+256),
		Context: skbuff{Ifindex: uint32(ifindex), GSOSegs: s.gso, GSOSize: s.gsoSize},
	}

	err = n.do(func() error {
		ret, err = prog.Run(&opts)
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("run %s: %w", s.hook, err)
	}

	return ret, opts.DataOut, nil
}

// forget deletes the learned state.
func forget(t testing.TB, g *Gateway) {
	t.Helper()

	maps := []*ebpf.Map{g.objs.Ns, g.objs.Frags}
	for _, m := range maps {
		var (
			keys  [][]byte
			value []byte
			key   []byte
		)

		it := m.Iterate()
		for it.Next(&key, &value) {
			keys = append(keys, bytes.Clone(key))
		}

		if err := it.Err(); err != nil {
			t.Fatal(err)
		}

		for _, k := range keys {
			_ = m.Delete(k)
		}
	}
}
