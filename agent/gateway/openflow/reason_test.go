package openflow_test

import (
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// countOf returns what a packet counts as: of the flows it meets exactly one decides.
func countOf(t *testing.T, trace ovs.Trace) openflow.Count {
	t.Helper()

	var found []openflow.Count

	for _, s := range trace.Steps() {
		i := slices.IndexFunc(openflow.Counts(), func(c openflow.Count) bool { return c.Number == s.Number })
		if s.Number != 0 && i >= 0 {
			found = append(found, openflow.Counts()[i])
		}
	}

	if len(found) != 1 {
		t.Fatalf("%d flows decide: %+v\n%s", len(found), found, trace.Text)
	}

	return found[0]
}

// otherReasons are those that flows give in place of the model's, where the
// verdict is the same.
var otherReasons = map[verdict.Reason][]string{
	verdict.ServiceLocal:    {"default", "not_ours"},
	verdict.Geneve:          {"multicast"},
	verdict.Malformed:       {"arp_other"},
	verdict.ICMPErrorHost:   {"not_ours"}, // a fragment to an unknown address
	verdict.OutLearned:      {"out"},
	verdict.ICMPErrorEcho:   {"icmp_error_both", "fragment_early"},
	verdict.ICMPEchoReplyNS: {"icmp_echo_reply_both", "fragment_early"},
	verdict.OutPlain:        {"out_learned"},
}

// checkCount compares what a packet counts as with its verdict and the model's reason.
func (r *rig) checkCount(t *testing.T, dir verdict.Direction, want verdict.Verdict, reason verdict.Reason, trace ovs.Trace) {
	t.Helper()

	c := countOf(t, trace)
	switch {
	case reason == verdict.Oversized: // its length is not known before
		return
	case c.Reason == "pass_unconfigured" && want == verdict.Host:
		return
	}

	if c.Verdict != want || c.Direction != dir {
		t.Errorf("counts as %s (%s, %s), but is %s, %s\n%s", c.Reason, c.Direction, c.Verdict, dir, want, trace.Text)
	}

	if want == reason.Verdict() && c.Reason != reason.String() && !slices.Contains(otherReasons[reason], c.Reason) {
		t.Errorf("counts as %s, the model says %s\n%s", c.Reason, reason, trace.Text)
	}
}

// checkSpelling: a frame that is spelled meets the same flows as the frame.
func (r *rig) checkSpelling(t *testing.T, dir verdict.Direction, frame []byte, want ovs.Trace) {
	t.Helper()

	spelled := openflow.Spell(verdict.Parse(frame))

	got, err := r.ctl.Trace(t.Context(), ovs.TraceInput{Bridge: bridge, Port: r.port(dir), Flow: spelled})
	if err != nil {
		t.Fatalf("%s: %v", spelled, err)
	}

	if a, b := countOf(t, got), countOf(t, want); a.Number != b.Number {
		t.Errorf("spelled %s it is %s, not %s\n%s\n%s", spelled, a.Reason, b.Reason, got.Text, want.Text)
	}
}
