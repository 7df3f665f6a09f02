package bpf

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// uncount removes counting from the programs of layout direct. Where a program starts to look up
// its counter, with a zero key, it inserts a jump-if-zero to the code for a missing counter. The
// verifier sees that the jump is always taken, and removes the rest except that zero.
func uncount(t testing.TB, spec *ebpf.CollectionSpec) {
	t.Helper()

	for _, h := range layoutHooks[verdict.Direct] {
		p, found := spec.Programs[h.program], 0
		for i := range p.Instructions {
			if !isCount(p.Instructions, i) {
				continue
			}

			const zero, store, end = -4, -3, 3 // a slot each, but the map's address has two

			jump := &p.Instructions[i+store]
			*jump = asm.Instruction{
				OpCode: asm.JEq.Op(asm.ImmSource), Dst: p.Instructions[i+zero].Dst,
				Offset: p.Instructions[i+end].Offset + end - store + 1, Metadata: jump.Metadata,
			}
			found++
		}

		if found == 0 {
			t.Fatalf("%s looks for no counter", h.program)
		}
	}
}

// isCount reports whether a counter lookup starts at i.
func isCount(code asm.Instructions, i int) bool {
	if i < 4 || i+3 >= len(code) || code[i].Reference() != "counters" {
		return false
	}

	var got []asm.OpCode
	for _, ins := range slices.Delete(slices.Clone(code[i-4:i+4]), 4, 5) {
		got = append(got, ins.OpCode)
	}

	for _, zero := range []asm.OpCode{asm.Mov.Op32(asm.ImmSource), asm.Mov.Op(asm.ImmSource)} {
		want := []asm.OpCode{
			zero, asm.StoreMemOp(asm.Word), asm.Mov.Op(asm.RegSource), asm.Add.Op(asm.ImmSource),
			asm.FnMapLookupElem.Call().OpCode, asm.Mov.Op(asm.RegSource), asm.JEq.Op(asm.ImmSource),
		}
		if slices.Equal(got, want) {
			return true
		}
	}

	return false
}

// openUncounted loads the programs of layout direct a second time, without counting.
func (n *node) openUncounted(b *testing.B) *Gateway {
	b.Helper()

	spec, err := loadGateway()
	if err != nil {
		b.Fatal(err)
	}

	uncount(b, spec)

	g := &Gateway{opts: Options{PinDir: n.pinDir, Config: n.config(), Log: slog.New(slog.DiscardHandler)}, progs: map[string]*ebpf.Program{}}
	if err := g.load(spec); err != nil {
		b.Fatal(err)
	}

	b.Cleanup(func() { g.Close() })

	g.digest = newDigest(&g.objs.gatewayVariables)
	if err := errors.Join(g.SetConfig(n.config()), g.restore()); err != nil {
		b.Fatal(err)
	}

	return g
}

// sampling is a monitor that samples every packet.
const sampling = "monitor of all"

// BenchmarkWatched measures the cost per packet for decision and counting, and for a monitor that
// runs before. Under test/vm/run -i a nanosecond is an instruction. ns/packet is the median over
// batches, which is robust against timers; "no program" is the cost of the test run itself. The
// result excludes the call of an additional program and the work of a monitor's reader.
func BenchmarkWatched(b *testing.B) {
	n, g := quietNode(b, verdict.Direct, vethWire)

	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer empty.Close()

	n.packets(b, "no program", empty, empty, 0, nil)
	n.packets(b, "as shipped", g.progs[uplinkIngress], g.progs[bridgeIngress], 1, nil)

	for _, look := range []struct {
		name string
		o    MonitorOptions
	}{
		{"monitor of others", MonitorOptions{Rate: 10, Want: func(Counter) bool { return false }}},
		{"monitor beyond its rate", MonitorOptions{Rate: 1}},
		{sampling, MonitorOptions{Rate: 1 << 30}},
	} {
		var m *Monitor

		n.must(b, func() (err error) {
			m, err = OpenMonitor(n.pinDir, look.o)
			return err
		})
		n.packets(b, look.name, m.coll.Programs["monitor_wire"], m.coll.Programs["monitor_ovn"], 0, m)

		if err := m.Close(); err != nil {
			b.Error(err)
		}
	}

	n.packets(b, "monitor ended", g.progs[uplinkIngress], g.progs[bridgeIngress], 1, nil)
	u := n.openUncounted(b)
	n.packets(b, "uncounted", u.progs[uplinkIngress], u.progs[bridgeIngress], 0, nil)
}

// packets measures each kind of packet. counted is the number of counts per packet. m is drained
// between the batches.
func (n *node) packets(b *testing.B, way string, in, out *ebpf.Program, counted int, m *Monitor) {
	payload := make([]byte, 64)
	for _, p := range []struct {
		name, reason string
		prog         *ebpf.Program
		ifindex      int
		frame        []byte
	}{
		{"host in", "default", in, n.uplink, v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 22, flagACK, payload...))},
		{"pod in", "snat_port", in, n.uplink, v4.rx(v4.remote, v4.node, protoUDP, udp(53, 50000, payload...))},
		{"pod out", "out", out, n.bridge, v4.tx(v4.node, v4.remote, protoUDP, udp(50000, 53, payload...))},
	} {
		b.Run(p.name+"/"+way, func(b *testing.B) {
			const settle = 50 * time.Millisecond

			batch := 20000 // so that a system call and a switch of threads are little of it
			if way == sampling {
				batch = 4000 // the ring buffer has room for all
			}

			before := counts(b, n.pinDir)[p.reason]

			var took []float64

			begin, batches := time.Now(), 0

			for len(took) < b.N {
				opts := ebpf.RunOptions{Data: p.frame, Context: skbuff{Ifindex: uint32(p.ifindex)}, Repeat: uint32(batch)}

				n.must(b, func() error {
					start := time.Now()
					_, err := p.prog.Run(&opts)
					each := float64(time.Since(start).Nanoseconds()) / float64(batch)
					// The kernel first frees earlier programs.
					if batches++; time.Since(begin) > settle && batches > 3 {
						took = append(took, each)
					}

					return err
				})

				sampled := m.drain(b)
				if way == sampling && sampled != batch || way != sampling && sampled > 1 {
					b.Fatalf("%d of %d sampled", sampled, batch)
				}
			}

			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "ns/packet")
			b.ReportMetric(0, "ns/op") // of a batch, and what is between: not shown

			if n, want := counts(b, n.pinDir)[p.reason]-before, uint64(counted*batch*batches); n != want {
				b.Fatalf("%d packets counted by %s, want %d", n, p.reason, want)
			}
		})
	}
}

// drain reads all available samples.
func (m *Monitor) drain(b *testing.B) (n int) {
	b.Helper()

	if m == nil {
		return 0
	}

	for m.SetDeadline(time.Now()); ; n++ {
		if _, err := m.Read(); errors.Is(err, os.ErrDeadlineExceeded) {
			return n
		} else if err != nil {
			b.Fatal(err)
		}
	}
}
