package ovs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestParseTable(t *testing.T) {
	got := parseTable("NXST_FLOW reply\n" +
		" cookie=" + Cookie + ", priority=1 actions=LOCAL\n" +
		" cookie=" + Cookie + ", table=3, priority=10,ip,nw_dst=10.0.0.1 actions=learn(table=4,priority=7),output:1\n" +
		" cookie=0x99, table=3, idle_timeout=9, priority=10,arp actions=drop\n" +
		" cookie=0x99, in_port=1 actions=drop\n" +
		" cookie=0x0, priority=0 actions=NORMAL\n")

	want := flowTable{
		ours:    map[string]string{"priority=1": "LOCAL", "table=3,priority=10,ip,nw_dst=10.0.0.1": "learn(table=4,priority=7),output:1"},
		foreign: map[string]string{"table=3,priority=10,arp": "0x99", "priority=0": "0x0"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(flowTable{})); diff != "" {
		t.Error(diff)
	}
}

// Only differences are written, and foreign flows are not changed.
func TestSyncBundle(t *testing.T) {
	s := testnode.StartSwitch(t, true)

	c := dial(t, s)
	if err := c.SyncBridge(t.Context(), Bridge{Name: "brx", DatapathType: "netdev"}); err != nil {
		t.Fatal(err)
	}

	target := "unix:" + s.Dir + "/brx.mgmt"

	testnode.Eventually(t, "the bridge is there", func() error {
		_, err := SyncBundle(t.Context(), s.Dir, "brx", nil)
		return err
	})

	for _, f := range []string{"cookie=0x99,priority=7,actions=drop", "cookie=" + LearnedCookie + ",table=9,priority=100,ip,actions=drop"} {
		testnode.Run(t, "ovs-ofctl", "add-flow", target, f)
	}

	var want []string
	for i := range 1000 {
		want = append(want, fmt.Sprintf("table=3,priority=800,tcp,nw_dst=10.0.0.1,tp_dst=%d actions=LOCAL", 1000+i))
	}

	sync := func(messages int) {
		t.Helper()

		got, err := SyncBundle(t.Context(), s.Dir, "brx", want)
		if err != nil || got != messages {
			t.Fatalf("%d messages, want %d, error %v", got, messages, err)
		}
	}
	sync(1000)
	sync(0)
	testnode.Run(t, "ovs-ofctl", "del-flows", target, "table=3,tcp,nw_dst=10.0.0.1,tp_dst=1500")
	sync(1)

	want[5] = strings.Replace(want[5], "LOCAL", "drop", 1) // other actions
	want = slices.Delete(want, 10, 12)
	want = append(want, "priority=1 actions=LOCAL")

	sync(4)
	sync(0)

	dump := testnode.Run(t, "ovs-ofctl", "dump-flows", target)
	for _, cookie := range []string{"cookie=0x99,", "cookie=" + LearnedCookie + ","} {
		if strings.Count(dump, cookie) != 1 {
			t.Errorf("flow with %s is gone", cookie)
		}
	}

	for _, tt := range []struct{ flow, err string }{
		{"priority=7 actions=LOCAL", "0x99"},                                      // foreign
		{"priority=8", "no actions"},                                              // not a flow
		{"priority=8,ip,nw_dst=1.2.3.4/24 actions=LOCAL", "not what was written"}, // not OVS' spelling
		{"priority=8,nosuchfield=1 actions=LOCAL", "nosuchfield"},
	} {
		if _, err := SyncBundle(t.Context(), s.Dir, "brx", append(slices.Clone(want), tt.flow)); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: error %v, want one with %q", tt.flow, err, tt.err)
		}
	}

	want = nil

	if _, err := SyncBundle(t.Context(), s.Dir, "brx", nil); err != nil {
		t.Fatal(err)
	}

	if dump := testnode.Run(t, "ovs-ofctl", "dump-flows", target, "cookie="+Cookie+"/"+CookieMask); strings.Contains(dump, "priority") {
		t.Errorf("left over: %s", dump)
	}
}

func TestOFPorts(t *testing.T) {
	s := testnode.StartSwitch(t, true)
	c := dial(t, s)
	s.Vsctl(t, "add-br", "brx", "--", "set", "Bridge", "brx", "datapath_type=netdev", "--", "add-br", "bry", "--", "set", "Bridge", "bry", "datapath_type=netdev",
		"--", "add-port", "brx", "inside", "--", "set", "Interface", "inside", "type=internal", "ofport_request=7",
		"--", "add-port", "brx", "there", "--", "set", "Interface", "there", "type=patch", "options:peer=back", "ofport_request=9",
		"--", "add-port", "bry", "back", "--", "set", "Interface", "back", "type=patch", "options:peer=there",
		"--", "add-port", "brx", "nosuchdevice")
	testnode.Eventually(t, "ports are open", func() error {
		ports, err := c.OFPorts(t.Context(), "brx")
		if diff := cmp.Diff(map[string]uint32{"inside": 7, "there": 9}, ports); err == nil && diff != "" {
			return fmt.Errorf("ports %s", diff)
		}

		return err
	})

	ports, err := c.PatchPorts(t.Context(), "brx")
	if diff := cmp.Diff(map[string]uint32{"there": 9}, ports); err != nil || diff != "" {
		t.Errorf("patch ports, error %v: %s", err, diff)
	}

	if _, err := c.OFPorts(t.Context(), "brz"); err == nil {
		t.Error("ports of a bridge that is not there")
	}
}

// TestDisconnectRemovesOnlyOVNsPatchPorts: other patch ports of both bridges stay.
func TestDisconnectRemovesOnlyOVNsPatchPorts(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	c := dial(t, s)
	argv := []string{"--no-wait", "--", "add-br", IntegrationBridge, "--", "add-br", "breth0", "--", "add-br", "other"}
	patch := func(bridge, port, peer string) {
		argv = append(argv, "--", "add-port", bridge, port, "--", "set", "Interface", port, "type=patch", "options:peer="+peer)
	}

	for _, to := range []string{"breth0", "other"} {
		near, far := "patch-br-int-to-"+to+"_node1", "patch-"+to+"_node1-to-br-int"
		patch(IntegrationBridge, near, far)
		patch(to, far, near)
	}

	patch("breth0", "there", "back")
	patch("other", "back", "there")
	s.Vsctl(t, argv...)
	testnode.Eventually(t, "the patch ports are seen", func() error {
		if ports, err := c.patches(t.Context(), "other"); err != nil || len(ports) != 2 {
			return fmt.Errorf("%v, error %w", ports, err)
		}

		return nil
	})

	for range 2 {
		if err := c.Disconnect(t.Context(), "breth0"); err != nil {
			t.Fatal(err)
		}
	}

	if err := c.Disconnect(t.Context(), "none"); err != nil {
		t.Errorf("a bridge that does not exist: %v", err)
	}

	got := map[string]string{}
	for _, bridge := range []string{IntegrationBridge, "breth0", "other"} {
		got[bridge] = strings.Join(strings.Fields(s.Vsctl(t, "list-ports", bridge)), " ")
	}

	want := map[string]string{IntegrationBridge: "patch-br-int-to-other_node1", "breth0": "there", "other": "back patch-other_node1-to-br-int"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}
