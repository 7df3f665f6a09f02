package ovs

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestObserves(t *testing.T) {
	for actions, want := range map[string]bool{
		"controller(userdata=00.00.00.07.00.00,meter_id=3)":         true,
		"controller(userdata=00.00.00.01.00.00)":                    false, // put_arp
		"sample(probability=65535,collector_set_id=1),resubmit(,9)": true,
		"set_queue:3,output:1":                                      true,
		"meter:2,resubmit(,9)":                                      true,
		"load:0x1->NXM_NX_XXREG0[112],resubmit(,12)":                true,
		"load:0x1->NXM_NX_XXREG0[97],resubmit(,12)":                 false,
		"ct(commit,zone=NXM_NX_REG13[0..15]),output:1":              false,
	} {
		if got := Observes(actions); got != want {
			t.Errorf("%s: %t", actions, got)
		}
	}
}

// Flows and settings of a real bridge are followed.
func TestFlowWatchFollowsBridge(t *testing.T) {
	i := startIntegration(t)
	flow := func(command, flow string) {
		t.Helper()
		testnode.Eventually(t, command, func() error {
			_, err := ofctl(t.Context(), nil, command, i.target(), flow)
			return err
		})
	}

	var (
		changes          atomic.Int64
		observed, failed atomic.Bool
	)

	w := &FlowWatch{
		RunDir: i.Dir, Bridge: IntegrationBridge,
		Rescan: 50 * time.Millisecond, Changed: func() { changes.Add(1) }, Observed: func(flow string) { observed.Store(flow != "") }, Failed: func(err error) { failed.Store(err != nil) },
	}
	testnode.Background(t, w.Run)

	await := func(what string, ok func() bool) {
		t.Helper()
		testnode.Eventually(t, what, func() error {
			if !ok() {
				return errors.New("not yet")
			}

			return nil
		})
	}
	await("the connection", func() bool { return changes.Load() > 0 })

	connected := changes.Load()

	await("events", func() bool { // ovs-ofctl drops those of the first moments
		flow("add-flow", fmt.Sprintf("cookie=%d,priority=20,ip,actions=drop", time.Now().UnixNano()))
		return changes.Load() > connected
	})

	for round := range 3 {
		was := changes.Load()

		flow("add-flow", fmt.Sprintf("priority=%d,ip,actions=drop", round+1))
		await("a change", func() bool { return changes.Load() > was })
		flow("add-flow", "priority=9,ip,nw_src=192.0.2.1,actions=controller(userdata=00.00.00.07.00.00.00.00.00.05),output:1")
		await("a logged flow", observed.Load)

		if round == 1 { // it loses its log, and is still there
			flow("mod-flows", "ip,nw_src=192.0.2.1,actions=output:1")
		} else {
			flow("del-flows", "ip,nw_src=192.0.2.1")
		}

		await("its end", func() bool { return !observed.Load() })
	}

	if what, err := i.client.PacketObserver(t.Context(), IntegrationBridge); what != "" || err != nil {
		t.Errorf("observed by %q, %v", what, err)
	}

	if out, err := exec.Command("ovs-vsctl", "--db="+i.Address, "--no-wait", "--", "--id=@m", "create", "Mirror", "name=m", "--", "set", "Bridge", IntegrationBridge, "mirrors=@m").CombinedOutput(); err != nil {
		t.Fatalf("add mirror: %v: %s", err, out)
	}

	await("the mirror", func() bool {
		what, err := i.client.PacketObserver(t.Context(), IntegrationBridge)
		return err == nil && what == "a mirror on "+IntegrationBridge
	})
}

// TestClient_Observed: each setting with which Open vSwitch looks at single packets is found, on each
// of the bridges, and no other is.
func TestClient_Observed(t *testing.T) {
	const second = "breth9"

	i := startIntegration(t)
	if err := i.client.SyncBridge(t.Context(), Bridge{Name: second, DatapathType: DatapathNetdev}); err != nil {
		t.Fatal(err)
	}

	vsctl := func(args ...string) {
		t.Helper()
		testnode.Run(t, append([]string{"ovs-vsctl", "--db=" + i.Address, "--no-wait"}, args...)...)
	}
	observed := func(want string) {
		t.Helper()
		testnode.Eventually(t, fmt.Sprintf("observed by %q", want), func() error {
			what, err := i.client.PacketObserver(t.Context(), IntegrationBridge, second, "absent")
			if err == nil && what != want {
				err = fmt.Errorf("%q", what)
			}

			return err
		})
	}
	observed("")

	for _, tt := range []struct {
		what, column string
		row          []string
	}{
		{"a mirror", "mirrors", []string{"Mirror", "name=m"}},
		{"sFlow", "sflow", []string{"sFlow", `targets="127.0.0.1:6343"`, "sampling=64"}},
		{"NetFlow", "netflow", []string{"NetFlow", `targets="127.0.0.1:2055"`}},
		{"IPFIX", "ipfix", []string{"IPFIX", `targets="127.0.0.1:4739"`}},
	} {
		for _, bridge := range []string{IntegrationBridge, second} {
			vsctl(slices.Concat([]string{"--", "--id=@row", "create"}, tt.row, []string{"--", "set", "Bridge", bridge, tt.column + "=@row"})...)
			observed(tt.what + " on " + bridge)
			vsctl("clear", "Bridge", bridge, tt.column)
			observed("")
		}
	}

	vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
	observed("hw-offload")
	vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=false")
	observed("")
}
