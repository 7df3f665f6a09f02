package openflow_test

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// ports are where a verdict sends a packet.
func portsOf(v verdict.Verdict) []string {
	switch v {
	case verdict.Host:
		return []string{bridge}
	case verdict.OVN:
		return []string{"patch"}
	case verdict.Both:
		return []string{bridge, "patch"}
	case verdict.Out:
		return []string{"uplink"}
	}

	return nil
}

// check compares one frame's trace with the model and returns the exception that applied, or "".
// Both learn from it.
func (r *rig) check(t *testing.T, at modelledNode, dir verdict.Direction, frame []byte) string {
	t.Helper()

	m := at.model
	trace := r.trace(t, dir, frame)
	f, name := seen(at.node, frame, trace)
	d := m.Decide(dir, f, now)

	learned := d
	if f.IP.Position != verdict.Unfragmented {
		learned = unseen(m, dir, f)
	}

	checkLearning(t, &f, learned, trace)
	m.Tables.Apply(learned, now)

	want := d.Verdict()
	if e := at.exceptionOf(dir, &f, d.Reason); e != nil {
		want, name = e.want, e.name
	}

	if name == unreadable && dir == verdict.FromOVN && isIP(&f) {
		want = verdict.Drop // rather than to let leak what cannot be judged
	}

	if in := strings.Contains(trace.Passes[0], "ct(zone=64003),recirc("); in != (name == reassembled) {
		t.Errorf("%s: reassembly %t\n%s", name, in, trace.Text)
	}

	got := trace.Outputs(ethernet + f.Length)
	slices.Sort(got)

	if !slices.Equal(got, portsOf(want)) {
		t.Errorf("%s, %s%s: to %v, want %v\nframe %x\n%s", dir, d.Reason, name, got, portsOf(want), frame, trace.Text)
	}

	reason := d.Reason
	if dir != verdict.FromWire && f.IP.Position != verdict.Unfragmented {
		reason = unseen(m, dir, f).Reason
	}

	r.checkCount(t, dir, want, reason, trace)

	if name == "" {
		r.checkSpelling(t, dir, frame, trace)
	}

	if dst := frame[:6]; dir == verdict.FromOVN && want == verdict.Host && !bytes.Equal(dst, corpus.NodeMAC[:]) &&
		!strings.Contains(strings.Join(trace.Passes, ","), "set(eth(dst=02:00:00:00:00:11))") {
		t.Errorf("%s: the host would not take it, to MAC %x\n%s", d.Reason, dst, trace.Text)
	}

	if vlan := at.node.Config.VLAN; vlan != 0 {
		ours := f.Tagged && f.VID == vlan && f.Type != corpus.EtherVLAN && f.Type != corpus.EtherQinQ
		priority := f.Priority && dir == verdict.FromWire && want != verdict.Drop
		pops, pushes := priority || ours && dir != verdict.FromHost, dir == verdict.FromHost && !f.Tagged
		checkTag(t, pops, pushes, trace)
	}

	return name
}

const ethernet = 14

// checkLearning compares what flows learn from a packet with the model's decision. Flows learn no
// echo requests: they send the replies to both sides. Of an oversized packet, OVS also translates the
// branch of shorter ones.
func checkLearning(t *testing.T, f *verdict.Frame, d verdict.Decision, trace ovs.Trace) {
	t.Helper()

	echo := uint8(corpus.ProtoICMP)
	if f.IP.V6 {
		echo = corpus.ProtoICMPv6
	}

	want := d.Learn != nil && d.Learn.Proto != echo
	if got := strings.Contains(trace.Text, "learn("); got != want && d.Reason != verdict.Oversized {
		t.Errorf("%s: learns %t, want %t\n%s", d.Reason, got, want, trace.Text)
	}
}

// checkTag: only OVN and the wire see the gateway network's tag. pops: the frame
// loses it on its way to the host; pushes: it gets it.
func checkTag(t *testing.T, pops, pushes bool, trace ovs.Trace) {
	t.Helper()

	actions := strings.Join(trace.Passes, ",")
	// also in a branch by length that this frame does not take
	pops = pops && strings.Contains(actions, bridge)
	if got := strings.Contains(actions, "pop_vlan,"+bridge); got != pops {
		t.Errorf("tag taken off: %t\n%s", got, trace.Text)
	}

	if got := strings.Contains(actions, "push_vlan"); got != pushes {
		t.Errorf("tag put on: %t\n%s", got, trace.Text)
	}
}

func TestCorpus(t *testing.T) {
	r := newRig(t)

	var at modelledNode

	exceptions, cases := map[string]int{}, 0

	for _, c := range corpus.Cases() {
		if !c.In(verdict.Bridged) {
			continue
		}

		if c.Node != at.node {
			at = modelledNode{c.Node, c.Node.Model(now)}
			r.install(t, c.Node)
		}

		cases++

		t.Run(c.Name, func(t *testing.T) {
			exceptions[r.check(t, at, c.Dir, c.Frame)]++
		})
	}

	t.Logf("%d cases, exceptions %v", cases, exceptions)
}

// Flows and model decide random frames at random nodes alike. OPENFLOW_FRAMES is their number.
func TestRandom(t *testing.T) {
	seed, frames, perNode := randomtest.Seed(t, "OPENFLOW_SEED"), 5000, 100
	if s, err := strconv.Atoi(os.Getenv("OPENFLOW_FRAMES")); err == nil {
		frames = s
	}

	r := newRig(t)
	g := corpus.NewGenerator(seed, corpus.Options{Layout: verdict.Bridged, Tags: true})
	exceptions := map[string]int{}

	var tracing time.Duration

	for range frames / perNode {
		n := g.Node()
		at := modelledNode{n, n.Model(now)}
		r.install(t, n)

		start := time.Now()

		for range perNode {
			dir, frame := g.Frame(n)

			exceptions[r.check(t, at, dir, frame)]++
			if t.Failed() {
				t.FailNow()
			}
		}

		tracing += time.Since(start)
	}

	t.Logf("%d frames, %.0f a second, exceptions %v", frames, float64(frames)/tracing.Seconds(), exceptions)
}
