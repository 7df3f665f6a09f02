package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// The cost of a program per packet. Under test/vm/run -i a nanosecond is an instruction; "empty" is
// the share of the test run itself:
//
//	go test -c -o bpf.test ./bpf
//	test/vm/run -i -- ./bpf.test -test.run NONE -test.bench Programs -test.benchtime 100000x
func BenchmarkPrograms(b *testing.B) {
	n := newNode(b)
	g := n.open(b)

	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer empty.Close()

	c := n.config()
	c.Layout = verdict.Bridged
	bridged := n.open(b, func(o *Options) { o.Config = c }).progs
	up, down := g.progs[uplinkIngress], g.progs[bridgeIngress]

	payload := make([]byte, 64)
	for _, bb := range []struct {
		name   string
		prog   *ebpf.Program
		packet []byte
	}{
		{"empty", empty, v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 22, flagACK, payload...))},
		{"host tcp v4", up, v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 22, flagACK, payload...))},
		{"host udp v4", up, v4.rx(v4.remote, v4.node, protoUDP, udp(53, 4000, payload...))},
		{"host tcp v6", up, v6.rx(v6.remote, v6.node, protoTCP, tcp(4000, 22, flagACK, payload...))},
		{"host icmp v4", up, v4.rx(v4.remote, v4.node, protoICMP, v4.ping(1))},
		{"geneve", up, v4.rx(v4.remote, v4.node, protoUDP, udp(4000, 6081, payload...))},
		{"snat in v4", up, v4.rx(v4.remote, v4.node, protoUDP, udp(53, 50000, payload...))},
		{"snat in v6", up, v6.rx(v6.remote, v6.node, protoUDP, udp(53, 50000, payload...))},
		{"service in v4", up, v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 30080, flagACK, payload...))},
		{"out v4", down, v4.tx(v4.node, v4.remote, protoUDP, udp(50000, 53, payload...))},
		{"bridged host tcp v4", bridged["bridged_uplink_in"], v4.rx(v4.remote, v4.node, protoTCP, tcp(4000, 22, flagACK, payload...))},
		{"bridged host out v4", bridged["bridged_bridge_out"], v4.tx(v4.node, v4.remote, protoTCP, tcp(22, 4000, flagACK, payload...))},
		{"bridged snat in v4", bridged["bridged_uplink_in"], v4.rx(v4.remote, v4.node, protoUDP, udp(53, 50000, payload...))},
		{"bridged out v4", bridged["bridged_uplink_out"], v4.tx(v4.node, v4.remote, protoUDP, udp(50000, 53, payload...))},
		{"out v6", down, v6.tx(v6.node, v6.remote, protoUDP, udp(50000, 53, payload...))},
	} {
		b.Run(bb.name, func(b *testing.B) {
			ifindex := n.uplink
			if bb.prog == down || bb.prog == bridged["bridged_bridge_out"] {
				ifindex = n.bridge
			}

			opts := ebpf.RunOptions{Data: bb.packet, Context: skbuff{Ifindex: uint32(ifindex)}, Repeat: uint32(b.N)}
			n.must(b, func() error {
				b.ResetTimer()

				_, err := bb.prog.Run(&opts)

				return err
			})
		})
	}
}

// BenchmarkScrape reads all counters of a gateway, as every scrape of the metrics does.
func BenchmarkScrape(b *testing.B) {
	n := newNode(b)
	n.open(b)

	for b.Loop() {
		got, err := ReadCounters(n.pinDir)
		if err != nil || len(got) != verdict.ReasonCount {
			b.Fatalf("%d counters: %v", len(got), err)
		}
	}
}
