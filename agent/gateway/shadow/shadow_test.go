package shadow

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

var layouts = []verdict.Layout{verdict.Direct, verdict.Bridged, verdict.Dedicated}

// sendAll sends the corpus' frames for the layout at the wanted nodes, twice, so that learned state
// matters. It waits until all are compared.
func (r *rig) sendAll(t *testing.T, want func(*corpus.Node) bool) {
	t.Helper()

	var node *corpus.Node

	before, sent := r.Stats(), uint64(0)
	compared := func() error {
		now := r.Stats()
		if n := total(now.Compared) + total(now.Skipped) - total(before.Compared) - total(before.Skipped); n < sent {
			return fmt.Errorf("%d of %d", n, sent)
		}

		return nil
	}

	for _, c := range corpus.Cases() {
		if !c.In(r.layout) || !want(c.Node) || !r.sends(c) {
			continue
		}

		if node != c.Node { // what is set does not change under a comparison
			testnode.Eventually(t, "comparisons at "+c.Node.Name, compared)
			node = c.Node
			r.set(t, node)
		}

		for range 2 {
			r.send(t, c)

			sent++
		}
	}

	testnode.Eventually(t, "comparisons", compared)

	if sent == 0 {
		t.Fatal("nothing sent")
	}
}

// sendWhile sends the corpus' frames at the wanted nodes, while more is true. It waits for none.
func (r *rig) sendWhile(t *testing.T, want func(*corpus.Node) bool, more func() bool) {
	t.Helper()

	var node *corpus.Node

	for _, c := range corpus.Cases() {
		if !more() {
			return
		}

		if !c.In(r.layout) || !want(c.Node) || !r.sends(c) {
			continue
		}

		if node != c.Node {
			node = c.Node
			r.set(t, node)
		}

		r.send(t, c)
	}
}

// teach sends pairs of frames in which the first decides the second.
func (r *rig) teach(t *testing.T) {
	t.Helper()
	r.set(t, corpus.Cases()[0].Node)

	for _, f := range []corpus.Family{corpus.V4, corpus.V6} {
		part := func(id uint32, offset uint16, l4 corpus.L4) []byte {
			p := corpus.IP{Src: f.Remote, Dst: f.Node, L4: l4, Fragment: &corpus.Fragment{ID: id, Offset: offset, More: offset == 0}}
			return p.Frame(corpus.NodeMAC, corpus.PeerMAC)
		}

		payload := make([]byte, 16)
		for _, s := range []struct {
			reason string
			dir    verdict.Direction
			frame  []byte
		}{
			{"snat_port", verdict.FromWire, part(701, 0, corpus.UDP(53, 50000, payload...))},
			{"fragment_ovn", verdict.FromWire, part(701, 24, corpus.Part(corpus.ProtoUDP))},
			{"default", verdict.FromWire, part(702, 0, corpus.UDP(53, 1024, payload...))},
			{"fragment", verdict.FromWire, part(702, 24, corpus.Part(corpus.ProtoUDP))},
			{"out_learned", verdict.FromOVN, f.Out(f.Ping(7001))},
			{"icmp_echo_reply_ns", verdict.FromWire, f.In(f.Pong(7001))},
			{"out_learned", verdict.FromOVN, f.Out(corpus.GRE())},
			{"proto_ns", verdict.FromWire, f.In(corpus.GRE())},
		} {
			before := r.Stats().Compared[s.reason]
			r.send(t, corpus.Case{Name: s.reason, Dir: s.dir, Frame: s.frame})
			testnode.Eventually(t, f.Name+" "+s.reason, func() error {
				if now := r.Stats(); now.Compared[s.reason] == before {
					return fmt.Errorf("%+v", now)
				}

				return nil
			})
		}
	}
}

// The model agrees with the programs for every frame at every node of the corpus.
func TestAgrees(t *testing.T) {
	for _, layout := range layouts {
		t.Run(layout.String(), func(t *testing.T) {
			r := newRig(t, layout, nil)
			r.sendAll(t, func(*corpus.Node) bool { return true })
			r.teach(t)

			s := r.Stats()
			if n := total(s.Mismatched); n != 0 {
				t.Errorf("%d mismatches: %v", n, s.Mismatched)
			}

			if skipped, all := total(s.Skipped), total(s.Compared); skipped*20 > all {
				t.Errorf("skipped %v of %d", s.Skipped, all)
			}

			for _, reason := range []string{"default", "snat_port", "service", "host_socket", "takeover", "out", "out_learned", "icmp_echo_reply_ns", "proto_ns", "fragment_ovn", "fragment"} {
				if s.Compared[reason] == 0 {
					t.Errorf("nothing compared by %s", reason)
				}
			}

			t.Logf("%+v", s)
		})
	}
}

// Faults in the model's input are counted: each under its reasons only.
func TestPlanted(t *testing.T) {
	tests := []struct {
		name  string
		plant func(*verdict.Config)
		want  []string // some of what must be counted
		never []string // what the fault is not about
	}{
		{"port range", func(c *verdict.Config) { c.SNATPorts.First++ }, []string{"snat_port"}, []string{"service", "icmp_echo", "geneve"}},
		{"geneve port", func(c *verdict.Config) { c.GenevePort++ }, []string{"geneve"}, []string{"service", "snat_syn", "icmp_echo"}},
		{"node address", func(c *verdict.Config) { c.Node4 = netip.Addr{} }, []string{"snat_port", "snat_syn"}, []string{"multicast", "vlan"}},
		{"router MAC", func(c *verdict.Config) { c.NodeMAC[5]++ }, []string{"default", "out"}, []string{"vlan"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, verdict.Direct, tt.plant)
			r.sendAll(t, func(n *corpus.Node) bool { return n.Name == "shared" })

			s := r.Stats()
			for _, reason := range tt.want {
				if s.Mismatched[reason] == 0 {
					t.Errorf("no mismatch by %s: %v", reason, s.Mismatched)
				}
			}

			for _, reason := range tt.never {
				if s.Mismatched[reason] != 0 || s.Compared[reason] == 0 {
					t.Errorf("%d mismatches of %d by %s", s.Mismatched[reason], s.Compared[reason], reason)
				}
			}
		})
	}
}

// TestChangedMACIsNoMismatch covers the time between a change of the uplink's MAC address and the
// agent's next configuration: the kernel sorts frames by the new address already.
func TestChangedMACIsNoMismatch(t *testing.T) {
	r := newRig(t, verdict.Direct, nil)

	uplink, err := net.InterfaceByIndex(r.uplink)
	if err != nil {
		t.Fatal(err)
	}

	testnode.Run(t, "ip", "link", "set", uplink.Name, "address", "02:00:00:00:00:99")
	r.sendAll(t, func(n *corpus.Node) bool { return n.Name == "shared" })

	if s := r.Stats(); total(s.Mismatched) != 0 {
		t.Errorf("mismatches: %v", s.Mismatched)
	}
}

// Shadow follows other programs, for example after the agent changed the uplink.
func TestFollows(t *testing.T) {
	r := newRig(t, verdict.Direct, nil)
	shared := func(n *corpus.Node) bool { return n.Name == "shared" }
	r.sendAll(t, shared)

	again, err := bpf.Open(bpf.Options{PinDir: r.o.PinDir, Log: r.o.Log, Config: r.config(&corpus.Cases()[0].Node.Config), Clsact: clsact()})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()

	if err := again.AttachUplink(r.uplink); err != nil {
		t.Fatal(err)
	}

	r.gateway = again

	testnode.Eventually(t, "the other programs to be followed", func() error {
		if n := r.begun.Load(); n < 2 {
			return fmt.Errorf("%d followed", n)
		}

		return nil
	})
	r.sendAll(t, shared)

	if s := r.Stats(); total(s.Mismatched) != 0 {
		t.Errorf("mismatches: %v", s.Mismatched)
	}
}

// TestFormerLoadIsNoMismatch covers the time in which Shadow still has the rules of programs that were
// replaced: these do not find frontends that came later.
func TestFormerLoadIsNoMismatch(t *testing.T) {
	r := newRig(t, verdict.Direct, nil)

	again, err := bpf.Open(bpf.Options{PinDir: r.o.PinDir, Log: r.o.Log, Config: r.config(&corpus.Cases()[0].Node.Config), Clsact: clsact()})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()

	if err := errors.Join(again.AttachBridge(r.bridge), again.AttachUplink(r.uplink)); err != nil {
		t.Fatal(err)
	}

	r.gateway = again
	shared := func(n *corpus.Node) bool { return n.Name == "shared" }
	// Most are compared with the former rules. Some are lost when Shadow changes over, which it may do at
	// once.
	r.sendWhile(t, shared, func() bool { return r.begun.Load() < 2 })
	testnode.Eventually(t, "the other programs to be followed", func() error {
		if n := r.begun.Load(); n < 2 {
			return fmt.Errorf("%d followed", n)
		}

		return nil
	})
	r.sendAll(t, shared)

	if s := r.Stats(); total(s.Mismatched) != 0 {
		t.Errorf("mismatches: %v", s.Mismatched)
	}
}

// The model gets the programs' configuration.
func TestNode(t *testing.T) {
	for _, c := range corpus.Cases() {
		r := &rig{layout: verdict.Direct, uplink: 1, bridge: 2}
		if diff := cmp.Diff(&c.Node.Config, r.config(&c.Node.Config).Model(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Fatalf("%s (-node +model's):\n%s", c.Name, diff)
		}
	}
}

// However a sample is truncated, the question is about the frame, or there is none.
func TestWhole(t *testing.T) {
	cuts := 0

	for _, c := range corpus.Cases() {
		tpid, tci, frame := corpus.Untag(c.Frame)
		if len(frame) < etherLen {
			continue
		}

		for _, captured := range []int{14, 34, 60, bpf.Snap} {
			s := bpf.Sample{Len: len(frame), L3: len(frame) - etherLen, TPID: tpid, TCI: tci, Frame: frame[:min(captured, len(frame))]}

			q, ok := newQuestion(s)
			if !ok {
				cuts++
				continue
			}

			if diff := cmp.Diff(verdict.Parse(c.Frame), q.parsed, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
				t.Errorf("%s, %d bytes captured (-frame +question):\n%s", c.Name, captured, diff)
			}

			if captured == bpf.Snap && len(frame) <= bpf.Snap && string(q.frame) != string(c.Frame) {
				t.Errorf("%s: frame is %x, want %x", c.Name, q.frame, c.Frame)
			}
		}
	}

	if cuts == 0 {
		t.Error("nothing was cut")
	}
}
