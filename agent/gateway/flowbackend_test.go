package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// Flows use the classes of the programs, except for decisions that only flows make.
func TestFlowReasons(t *testing.T) {
	of := map[string]bpf.Counter{}
	for _, c := range bpf.Reasons() {
		of[c.Reason] = c
	}

	var alone []string

	for _, c := range FlowReasons() {
		if want, ok := of[c.Reason]; !ok {
			alone = append(alone, c.Reason)
		} else if c != want {
			t.Errorf("flows count %+v, programs %+v", c, want)
		}

		delete(of, c.Reason)
	}

	if want := []string{"icmp_error_both", "icmp_echo_reply_both"}; !slices.Equal(alone, want) || len(of) > 0 {
		t.Errorf("only of flows: %v, want %v; only of programs: %v", alone, want, of)
	}
}

// flowsCount waits until the host's own connection is counted in both directions.
func (r *rig) flowsCount(t *testing.T) {
	t.Helper()
	testnode.Eventually(t, "flows count", func() error {
		counters, err := r.gw.Counters(t.Context())
		if err != nil {
			return err
		}

		for _, reason := range []string{"pass_unconfigured", "host_out"} { // no ovn-controller has made a patch port
			i := slices.IndexFunc(counters, func(c bpf.Counter) bool { return c.Reason == reason })
			if c := counters[i]; c.Packets == 0 || c.Bytes < 60*c.Packets {
				return fmt.Errorf("%+v", c)
			}
		}

		return nil
	})
}
