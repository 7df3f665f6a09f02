package openflow_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway"
	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

// The explanation of a packet matches its count, for the whole corpus, and explaining makes no flow
// learn. A short run uses every third case.
func TestExplain(t *testing.T) {
	y := newTally(t)

	var node *corpus.Node

	cases := 0

	for i, c := range corpus.Cases() {
		if !c.In(verdict.Bridged) || testing.Short() && i%7 != 0 {
			continue
		}

		if c.Node != node {
			y.check(t, "the node before") // what is deleted now has been read
			y.install(t, c.Node)
			y.revalidate(t)
			node, y.learned = c.Node, y.learnedFlows(t)
		}

		x := gateway.NewFlowExplainer(y.ctl, bridge, y.ports, node.Config.NodeMAC[:])

		t.Run(c.Name, func(t *testing.T) {
			if y.explained(t, x, node, c.Dir, c.Frame) {
				cases++
			}
		})
	}

	y.check(t, "the last node")
	t.Logf("%d cases", cases)
}

// explained compares the explanation of a frame with its trace, and sends it. It returns false if
// the frame is not sent or waits for other fragments.
func (y *tally) explained(t *testing.T, x *gateway.FlowExplainer, n *corpus.Node, dir verdict.Direction, frame []byte) bool {
	t.Helper()

	got, err := x.Explain(t.Context(), dir, frame)
	if err != nil {
		t.Fatal(err)
	}

	teaches := strings.Contains(fmt.Sprint(got.Steps), "learn(")
	if teaches && y.learnedFlows(t) != y.learned {
		t.Errorf("explaining it taught the flows: %s\nbefore: %s", y.learnedFlows(t), y.learned)
	}

	trace := y.trace(t, dir, frame)
	if teaches { // by the trace, as by the frame
		if now := y.learnedFlows(t); now != y.learned {
			y.learned = now
			y.revalidate(t)
		}
	}

	if _, name := seen(n, frame, trace); name != "" && dir == verdict.FromOVN {
		return false // OVS reads otherwise what is not well formed, and there it is asked about what we read
	}

	want := countOf(t, trace)

	long := n.Config.Local && n.Config.MTU > 0 && verdict.Parse(frame).Length > n.Config.MTU
	if got.Reason != want.Reason && (got.Reason != verdict.Oversized.String() || !long) {
		t.Errorf("explained as %s, is %s\n%s", got.Reason, want.Reason, trace.Text)
	}

	ports := trace.Outputs(ethernet + verdict.Parse(frame).Length)
	slices.Sort(ports)

	if i := slices.IndexFunc(openflow.Counts(), func(c openflow.Count) bool { return c.Reason == got.Reason }); !slices.Equal(ports, portsOf(openflow.Counts()[i].Verdict)) {
		t.Errorf("explained as %s, but it leaves by %v\n%s", got.Verdict, ports, trace.Text)
	}

	steps := trace.Steps()
	i := slices.IndexFunc(steps, func(s ovs.Step) bool { return s.Number == want.Number })

	match, _, _ := strings.Cut(steps[i].Match, "nd_reserved=") // of which there is a flow for each value
	if last := got.Steps[len(got.Steps)-1]; !long && match != "" && !strings.HasPrefix(last.Match, match) {
		t.Errorf("decided by %q, want %q", last, steps[i].Match)
	}

	if strings.Contains(trace.Passes[0], "ct(zone=64003),recirc(") {
		return false
	}

	port := map[verdict.Direction]string{verdict.FromWire: "uplink", verdict.FromOVN: "patch", verdict.FromHost: bridge}[dir]
	y.receive(t, port, []string{hex.EncodeToString(frame)})
	s := y.sent[want.Reason]
	y.sent[want.Reason] = ovs.FlowCount{Packets: s.Packets + 1, Bytes: s.Bytes + uint64(len(frame))}

	return true
}

// learnedFlows returns all learned flows.
func (r *rig) learnedFlows(t *testing.T) string {
	t.Helper()
	return testnode.Run(t, "ovs-ofctl", "--no-stats", "dump-flows", "unix:"+r.Dir+"/"+bridge+".mgmt", "cookie="+ovs.LearnedCookie+"/-1")
}
