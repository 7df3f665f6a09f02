package ovs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

func dial(t *testing.T, s *testnode.Switch) *Client {
	t.Helper()

	c, err := Dial(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)

	return c
}

func TestMergeMapping(t *testing.T) {
	for _, tc := range []struct{ name, current, network, bridge, want string }{
		{"first", "", "physnet", "breth0", "physnet:breth0"},
		{"same", "physnet:breth0", "physnet", "breth0", "physnet:breth0"},
		{"foreign kept, in order", "a:b,c:d", "physnet", "breth0", "a:b,c:d,physnet:breth0"},
		{"moved", "physnet:breth1,a:b", "physnet", "breth0", "physnet:breth0,a:b"},
		{"twice becomes once", "physnet:x,physnet:y", "physnet", "breth0", "physnet:breth0"},
		{"removed", "a:b,physnet:breth0", "physnet", "", "a:b"},
		{"removed, was not there", "a:b", "physnet", "", "a:b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := mergeMapping(tc.current, tc.network, tc.bridge); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	s.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:foreign=1", "external_ids:ovn-remote-probe-interval=60000",
		"external_ids:ovn-bridge-mappings=other:brother")
	c := dial(t, s)

	want := Settings{Remote: "tcp:1.2.3.4:6642", EncapIP: "172.30.1.11", DatapathType: "netdev", Hostname: "node1", SystemID: "node1"}
	for range 2 {
		id, err := c.SyncSettings(t.Context(), want)
		if err != nil || id != "node1" {
			t.Fatalf("system-id %q, error %v", id, err)
		}

		if err := c.SyncBridgeMapping(t.Context(), "physnet", "breth0"); err != nil {
			t.Fatal(err)
		}
	}

	want.EncapIP = "172.30.1.12" // a key that changes is replaced

	want.SystemID = "other" // a system-id that is set is kept
	if id, err := c.SyncSettings(t.Context(), want); err != nil || id != "node1" {
		t.Fatalf("system-id %q, error %v", id, err)
	}

	root, err := c.root(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(map[string]string{
		"foreign": "1", "hostname": "node1", "system-id": "node1",
		"ovn-remote": "tcp:1.2.3.4:6642", "ovn-encap-type": "geneve", "ovn-encap-ip": "172.30.1.12",
		"ovn-bridge-datapath-type": "netdev", "ovn-monitor-all": "true",
		"ovn-openflow-probe-interval": "180", "ovn-remote-probe-interval": "60000",
		"ovn-bridge-mappings": "other:brother,physnet:breth0", "ovn-ebpf-before": `{"ovn-remote-probe-interval":"60000"}`,
	}, root.ExternalIDs); diff != "" {
		t.Error(diff)
	}
}

// TestSettingsAreRestored checks that the node's settings from before the first agent are restored,
// even if a later agent wrote others. Foreign settings stay.
func TestSettingsAreRestored(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	s.Vsctl(t, "set", "Open_vSwitch", ".", "external_ids:foreign=1", "external_ids:ovn-encap-ip=10.0.0.1", `external_ids:ovn-remote="ssl:192.0.2.1:6642"`)
	c := dial(t, s)
	list := func() string { return s.Vsctl(t, "get", "Open_vSwitch", ".", "external_ids") }
	was := list()

	for _, encap := range []string{"172.30.1.11", "172.30.1.12"} {
		if _, err := c.SyncSettings(t.Context(), Settings{Remote: "tcp:1.2.3.4:6642", EncapIP: encap, DatapathType: "netdev", Hostname: "node1", SystemID: "node1"}); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 { // the second time there is no record any more
		if err := c.RestoreSettings(t.Context()); err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(was, list()); diff != "" {
			t.Errorf("before and after (-before +after):\n%s", diff)
		}
	}
}

func TestBridgeAndPorts(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	c := dial(t, s)
	ctx := t.Context()

	bridge := Bridge{Name: "brx", DatapathType: "netdev", FailMode: FailSecure, HWAddr: "02:00:00:00:00:01", MTU: 1500, Existing: true}
	if err := c.SyncBridge(ctx, bridge); !errors.Is(err, ErrNotFound) {
		t.Errorf("a bridge that has to be there already: got %v, want ErrNotFound", err)
	}

	bridge.Existing = false
	if err := c.SyncBridge(ctx, bridge); err != nil {
		t.Fatal(err)
	}

	s.Vsctl(t, "set", "Bridge", "brx", "other_config:foreign=1", "fail_mode=standalone")

	bridge.MTU, bridge.HWAddr = 9000, "02:00:00:00:00:02"

	testnode.Eventually(t, "the client has seen the change", func() error {
		if b, err := c.bridge(ctx, "brx"); err != nil || *b.FailMode != "standalone" {
			return fmt.Errorf("fail mode not changed yet, error %w", err)
		}

		return nil
	})

	if err := c.SyncBridge(ctx, bridge); err != nil {
		t.Fatal(err)
	}

	got := s.Vsctl(t, "get", "Bridge", "brx", "fail_mode", "datapath_type", "other_config") + s.Vsctl(t, "get", "Interface", "brx", "mtu_request")
	if diff := cmp.Diff("secure\nnetdev\n{foreign=\"1\", hwaddr=\"02:00:00:00:00:02\"}\n9000\n", got); diff != "" {
		t.Error(diff)
	}

	port := Port{Bridge: "brx", Name: "vetha", Transient: true, ExternalIDs: map[string]string{IfaceID: "ns_pod", Sandbox: "c1"}}
	for range 2 {
		if err := c.SyncPort(ctx, port); err != nil {
			t.Fatal(err)
		}
	}

	port.Name, port.ExternalIDs = "vethb", map[string]string{IfaceID: "ns_pod", Sandbox: "c2"}
	if err := c.SyncPort(ctx, port); err != nil {
		t.Fatal(err)
	}

	if got := s.Vsctl(t, "list-ports", "brx"); got != "vethb\n" {
		t.Errorf("ports %q: want only the new sandbox's", got)
	}

	if err := c.RemovePorts(ctx, Sandbox, "c2"); err != nil {
		t.Fatal(err)
	}

	if err := c.RemovePort(ctx, "vethb"); err != nil {
		t.Errorf("removing what is not there: %v", err)
	}

	if _, _, err := c.Port(ctx, "vethb"); !errors.Is(err, ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}

	for range 2 {
		if err := c.RemoveBridge(ctx, "brx"); err != nil {
			t.Fatal(err)
		}
	}

	if err := c.SyncPort(ctx, port); !errors.Is(err, ErrNotFound) {
		t.Errorf("port on no bridge: got %v, want ErrNotFound", err)
	}
}

func TestWaitInstalled(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	c := dial(t, s)

	ctx := t.Context()
	if err := c.SyncBridge(ctx, Bridge{Name: "br-int", DatapathType: "netdev"}); err != nil {
		t.Fatal(err)
	}

	if err := c.SyncPort(ctx, Port{Bridge: "br-int", Name: "vetha", ExternalIDs: map[string]string{IfaceID: "a"}}); err != nil {
		t.Fatal(err)
	}

	done := make(chan error, 1)
	go func() { done <- c.WaitInstalled(ctx, "vetha") }()

	s.Vsctl(t, "set", "Interface", "vetha", "external_ids:ovn-installed=true")

	if err := <-done; err != nil {
		t.Error(err)
	}
	go func() { done <- c.WaitInstalled(ctx, "vetha") }()

	if err := <-done; err != nil {
		t.Error(err)
	}

	s.Vsctl(t, "remove", "Interface", "vetha", "external_ids", "ovn-installed")
	testnode.Eventually(t, "the client has seen the change", func() error {
		if ids, _, err := c.Port(ctx, "vetha"); err != nil || ids["ovn-installed"] != "" {
			return fmt.Errorf("still installed, error %w", err)
		}

		return nil
	})

	go func() { done <- c.WaitInstalled(ctx, "vetha") }()

	s.Vsctl(t, "del-port", "vetha")

	if err := <-done; !errors.Is(err, ErrNotFound) {
		t.Errorf("port deleted: got %v, want ErrNotFound", err)
	}

	short, cancel := context.WithCancel(ctx)
	cancel()

	if err := c.SyncPort(ctx, Port{Bridge: "br-int", Name: "vethc"}); err != nil {
		t.Fatal(err)
	}

	if err := c.WaitInstalled(short, "vethc"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestReconnect(t *testing.T) {
	s := testnode.StartSwitch(t, false)
	c := dial(t, s)
	wake := loop.NewSignal()

	stop := c.Watch(func(table, _ string) bool { return table == "Bridge" }, wake)
	defer stop()

	written := make(chan error, 1)

	s.RestartServer(t, func() {
		testnode.Eventually(t, "loss noticed", func() error {
			if c.Connected() {
				return errors.New("still connected")
			}

			return nil
		})
		go func() { written <- c.SyncBridge(t.Context(), Bridge{Name: "brx", DatapathType: "netdev"}) }()
	})

	if err := <-written; err != nil {
		t.Fatal(err)
	}

	<-wake

	if got := s.Vsctl(t, "list-br"); got != "brx\n" {
		t.Errorf("bridges %q", got)
	}
}

func TestFlowsSurviveRestart(t *testing.T) {
	s := testnode.StartSwitch(t, true)
	c := dial(t, s)

	ctx := t.Context()
	if err := c.SyncBridge(ctx, Bridge{Name: "brx", DatapathType: "netdev"}); err != nil {
		t.Fatal(err)
	}

	up, down := make(chan struct{}, 16), make(chan struct{}, 16)
	watch, cancel := context.WithCancel(ctx)

	ended := make(chan error, 1)
	go func() {
		ended <- WatchBridge(watch, s.Dir, "brx", func() { up <- struct{}{} }, func() { down <- struct{}{} })
	}()

	<-up
	testnode.Run(t, "ovs-ofctl", "add-flow", "unix:"+s.Dir+"/brx.mgmt", "cookie=0x99,priority=7,actions=drop")

	want := []string{"priority=100,in_port=LOCAL actions=ALL", "priority=1 actions=LOCAL"}
	if n, err := SyncBundle(ctx, s.Dir, "brx", want); err != nil || n != len(want) {
		t.Fatalf("%d messages, error %v", n, err)
	}

	if got := testnode.Run(t, "ovs-ofctl", "dump-flows", "unix:"+s.Dir+"/brx.mgmt", "cookie=0x99/-1"); !strings.Contains(got, "priority=7") {
		t.Errorf("a foreign flow is gone: %s", got)
	}

	s.KillVswitchd()
	<-down
	s.StartVswitchd(t)
	<-up

	if n, err := SyncBundle(ctx, s.Dir, "brx", want); err != nil || n != len(want) {
		t.Errorf("after a restart: %d messages, error %v", n, err)
	}

	s.Vsctl(t, "del-br", "brx")
	<-down
	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestDetectDatapath(t *testing.T) {
	if got, why := DetectDatapath(func(string) bool { return true }); got != DatapathSystem {
		t.Errorf("with the family: %s (%s)", got, why)
	}

	_, why := DetectDatapath(func(string) bool { return false })
	if why == "" {
		t.Error("no reason given")
	}
}

func TestDialFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()

	if _, err := Dial(ctx, "unix:/nonexistent/db.sock"); err == nil || !strings.Contains(err.Error(), "/nonexistent/db.sock") {
		t.Errorf("got %v, want an error that names the address", err)
	}
}
