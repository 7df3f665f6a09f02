package ovs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestPredecessor checks that the agent's flows replace those of ovn-kubernetes in every table, and
// that these are restored unchanged. Foreign flows stay.
func TestPredecessor(t *testing.T) {
	s := testnode.StartSwitch(t, true)

	c := dial(t, s)
	if err := c.SyncBridge(t.Context(), Bridge{Name: "brx", DatapathType: "netdev"}); err != nil {
		t.Fatal(err)
	}

	testnode.Eventually(t, "the bridge is there", func() error {
		_, err := SyncBundle(t.Context(), s.Dir, "brx", nil)
		return err
	})

	target := "unix:" + s.Dir + "/brx.mgmt"
	for _, f := range []string{
		"cookie=0xdeff105,priority=100,ip,in_port=1,actions=ct(commit,zone=64000,exec(set_field:0x1->ct_mark)),output:2",
		"cookie=0xdeff105,table=2,actions=set_field:0a:58:00:00:00:01->eth_dst,output:2", // the default priority
		"cookie=0xdeff105,table=1,priority=10,actions=LOCAL", "cookie=0x99,priority=7,actions=drop",
	} {
		testnode.Run(t, "ovs-ofctl", "-O", "OpenFlow13", "add-flow", target, f)
	}

	before := testnode.Run(t, "ovs-ofctl", "--no-stats", "dump-flows", target)

	flows, err := PredecessorFlows(t.Context(), s.Dir, "brx")
	if err != nil || len(flows) != 3 {
		t.Fatalf("flows %q, error %v", flows, err)
	}

	w := FlowSync{RunDir: s.Dir, Bridge: "brx", Evict: PredecessorCookie}

	want := []string{"priority=1 actions=LOCAL", "table=1,priority=10 actions=drop"} // the second in the place of theirs
	for _, messages := range []int{3, 0} {
		if n, err := w.All(t.Context(), want); err != nil || n != messages {
			t.Errorf("%d messages, want %d, error %v", n, messages, err)
		}
	}

	if now, err := PredecessorFlows(t.Context(), s.Dir, "brx"); err != nil || len(now) != 0 {
		t.Errorf("left: %q, error %v", now, err)
	}

	handover := []string{"priority=65000,idle_timeout=3600,tcp,in_port=1,nw_src=10.0.0.1,tp_src=1,actions=drop"}
	if err := ReturnFlows(t.Context(), s.Dir, "brx", flows, handover); err != nil {
		t.Fatal(err)
	}

	if first, others, err := OwnFlows(t.Context(), s.Dir, "brx"); first != 1 || others != 0 || err != nil {
		t.Errorf("of ours %d and %d are there, error %v", first, others, err)
	}

	testnode.Run(t, "ovs-ofctl", "del-flows", target, "cookie="+Cookie+"/-1")

	if diff := cmp.Diff(before, testnode.Run(t, "ovs-ofctl", "--no-stats", "dump-flows", target)); diff != "" {
		t.Errorf("flows before and after (-before +after):\n%s", diff)
	}
}

// TestKept checks that Restore reverts exactly what the agent writes in OVS.
func TestKept(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	s.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:foreign=1", "external_ids:ovn-encap-ip=10.0.0.1", "external_ids:ovn-bridge-mappings=physnet:breth0")
	s.Vsctl(t, "add-br", "breth0", "--", "set", "Bridge", "breth0", "other_config:hwaddr=0a:58:00:00:00:01", "external_ids:bridge-uplink=eth0")
	s.Vsctl(t, "add-br", "br-int", "--", "add-port", "br-int", "mp0", "--", "set", "Interface", "mp0", "type=internal", "external_ids:iface-id=k8s-node1")
	c := dial(t, s)
	state := func() string {
		var out strings.Builder

		for _, of := range []string{"external_ids list Open_vSwitch", "name,datapath_type,fail_mode,other_config,external_ids list Bridge", "name,mac,mtu_request,external_ids list Interface"} {
			columns, list, _ := strings.Cut(of, " ")
			fmt.Fprintln(&out, s.Vsctl(t, append([]string{"--columns=" + columns}, strings.Fields(list)...)...))
		}

		return out.String()
	}
	before := state()

	kept, err := c.ReadConfig(t.Context(), []string{"breth0", "br-int", "none"}, []string{"breth0", "mp0", "none"})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := c.SyncSettings(t.Context(), Settings{Remote: "tcp:1.2.3.4:6642", EncapIP: "10.0.0.2", DatapathType: "netdev", Hostname: "h", SystemID: "id"}); err != nil {
		t.Fatal(err)
	}

	if err := c.SyncBridgeMapping(t.Context(), "physnet", "other"); err != nil {
		t.Fatal(err)
	}

	for _, b := range []Bridge{{Name: "breth0", FailMode: FailStandalone, HWAddr: "0a:58:00:00:00:02", MTU: 1400}, {Name: "br-int", FailMode: FailSecure, DatapathType: "netdev", OtherConfig: map[string]string{"disable-in-band": "true"}}} {
		if err := c.SyncBridge(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}

	if err := c.SyncPort(t.Context(), Port{Bridge: "br-int", Name: "mp0", Type: "internal", MAC: "0a:58:00:00:00:03", MTU: 1300, ExternalIDs: map[string]string{IfaceID: "other"}}); err != nil {
		t.Fatal(err)
	}

	s.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:later=2") // not ours

	if err := c.Restore(t.Context(), kept); err != nil {
		t.Fatal(err)
	}

	s.Vsctl(t, "remove", "Open_vSwitch", ".", "external_ids", "later=2")

	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("before and after (-before +after):\n%s", diff)
	}
}
