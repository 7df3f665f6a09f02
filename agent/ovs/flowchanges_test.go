package ovs

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// Every change of a flow can concern an established connection, so it is reported once. The flows are
// like OVN's for policies, routes, Services, next hops and pods' ports. Flows that Open vSwitch learns
// for session affinity are the only exception.
func TestFlowWatch_reportsEveryChange(t *testing.T) {
	const affinity = "table=78,priority=100,tcp,metadata=0x5,nw_src=10.244.0.4,tp_dst=80"

	i := startIntegration(t)

	var (
		changes atomic.Int64
		known   atomic.Bool
	)

	w := &FlowWatch{
		RunDir: i.Dir, Bridge: IntegrationBridge, Changed: func() { changes.Add(1) },
		Observed: func(flow string) { known.Store(flow == "") }, Failed: func(error) {},
	}
	testnode.Background(t, w.Run)
	testnode.Eventually(t, "flows that are read", func() error {
		if !known.Load() {
			return fmt.Errorf("not yet")
		}

		return nil
	})

	for _, flow := range []string{
		"table=14,priority=2001,ip,reg14=0x3,metadata=0x1",                        // ingress ACL of a logical switch
		"table=46,priority=2001,ct_state=+est+trk,ct_mark=0/0x1,tcp,metadata=0x1", // egress ACL
		"table=46,priority=1001,conj_id=7,ip,metadata=0x1",                        // an address set of an ACL
		"table=19,priority=97,ip,metadata=0x2,nw_dst=198.51.100.0/24",             // a route
		"table=15,priority=120,ct_state=+new+trk,tcp,metadata=0x1,nw_dst=10.96.0.9",
		"table=66,priority=100,reg15=0x1,metadata=0x2,reg0=0xac1e00c8", // the MAC address of a next hop
		"table=78,priority=100,ip,metadata=0x1",
		"table=0,priority=100,in_port=7", // a pod's port
	} {
		for _, step := range []struct{ what, command, flow string }{
			{"added", "add", flow + ",actions=drop"},
			{"modified", "modify_strict", flow + ",actions=resubmit(,47)"},
			{"deleted", "delete_strict", flow},
		} {
			before := changes.Load()
			// Events arrive in order. If one of the first two were reported, the counter would rise by
			// more than 1.
			flows := "add " + affinity + ",idle_timeout=3,actions=drop\ndelete_strict " + affinity + "\n" + step.command + " " + step.flow + "\n"
			if _, err := ofctl(t.Context(), []byte(flows), "add-flows", i.target(), "-"); err != nil {
				t.Fatalf("%s: %v", flows, err)
			}

			testnode.Eventually(t, step.what+" "+flow, func() error {
				if changes.Load() == before {
					return fmt.Errorf("no change is reported")
				}

				return nil
			})

			if got := changes.Load(); got != before+1 {
				t.Errorf("%s %s: %d changes are reported, want 1", step.what, flow, got-before)
			}
		}
	}
}
