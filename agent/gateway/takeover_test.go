package gateway

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestTakeoverIsRestored checks that ovn-kubernetes' configuration of a node is recorded once,
// replaced, and restored. The host must be reachable at each step. TestFromOVNKubernetes is the
// complete test, with connections of pods.
func TestTakeoverIsRestored(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.s.Backend = OpenFlow
	r.bridged()

	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	take := func(t *testing.T, want bool) {
		t.Helper()
		testnode.Eventually(t, "vswitchd answers", func() error {
			_, err := ovs.PredecessorFlows(t.Context(), r.s.OVSRunDir, r.s.Bridge)
			return err
		})

		if err := RecordTakeover(t.Context(), r.s, r.ovs, log); err != nil {
			t.Fatal(err)
		}

		if got := TakenOver(r.s.RunDir); got != want {
			t.Fatalf("taken over: %t, want %t", got, want)
		}
	}
	theirs := func(t *testing.T) []string {
		t.Helper()

		flows, err := ovs.PredecessorFlows(t.Context(), r.s.OVSRunDir, r.s.Bridge)
		if err != nil {
			t.Fatal(err)
		}

		return flows
	}
	write := func() {
		for _, f := range []string{"priority=0,actions=NORMAL", "priority=100,ip,in_port=LOCAL,actions=ct(commit,zone=64000,exec(load:2->NXM_NX_CT_MARK[])),NORMAL", "table=2,actions=LOCAL"} {
			testnode.Run(t, "ovs-ofctl", "add-flow", "unix:"+r.sw.Dir+"/breth0.mgmt", "cookie="+ovs.PredecessorCookie+","+f)
		}
	}

	const mapping = "physnet:breth0"

	r.step("nothing to take over", func(t *testing.T) { take(t, false) })
	r.sw.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings="+mapping)
	write()

	before := theirs(t)
	r.step("taken over", func(t *testing.T) {
		take(t, true)
		r.start()

		if left := theirs(t); len(left) > 0 {
			t.Errorf("left beside ours: %q", left)
		}

		r.hostAnswers()
		take(t, true) // an agent that is started again notes nothing of its own
		r.stop()
	})
	r.step("not without OVSDB", func(t *testing.T) {
		if err := Cleanup(t.Context(), r.s, nil, log); err == nil || !TakenOver(r.s.RunDir) {
			t.Errorf("error %v, still taken over: %t", err, TakenOver(r.s.RunDir))
		}

		r.hostAnswers()
	})
	r.step("restored", func(t *testing.T) {
		if err := Cleanup(t.Context(), r.s, r.ovs, log); err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(before, theirs(t)); diff != "" {
			t.Errorf("flows (-before +after):\n%s", diff)
		}

		if first, others, err := ovs.OwnFlows(t.Context(), r.s.OVSRunDir, r.s.Bridge); first+others != 0 || err != nil {
			t.Errorf("%d and %d of ours are left, error %v", first, others, err)
		}

		if got := r.sw.Vsctl(t, "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"); !strings.Contains(got, mapping) || TakenOver(r.s.RunDir) {
			t.Errorf("mapping %s, still taken over: %t", got, TakenOver(r.s.RunDir))
		}

		r.hostAnswers()
	})
	r.step("restored with other ports", func(t *testing.T) {
		take(t, true)
		r.start()
		r.stop()
		r.sw.Vsctl(t, "del-port", "breth0", "eth0", "--", "add-port", "breth0", "eth0", "--", "set", "Interface", "eth0", "ofport_request=77")
		testnode.Eventually(t, "another number", func() error {
			if n, err := bridgePorts(t.Context(), r.ovs, r.s.Bridge, r.s.Uplink); err != nil || n.Uplink != 77 {
				return errors.Join(err, errors.New("not yet"))
			}

			return nil
		})

		if err := Cleanup(t.Context(), r.s, r.ovs, log); err != nil {
			t.Fatal(err)
		}

		if now := theirs(t); len(now) != 0 || TakenOver(r.s.RunDir) {
			t.Errorf("flows that name another port: %q, still taken over: %t", now, TakenOver(r.s.RunDir))
		}

		r.hostAnswers() // the bridge is a switch
	})
}
