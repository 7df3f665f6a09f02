package podnet_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/test/platform"
)

// keeper returns a Keeper with a fake API server.
func (r rig) keeper(gone map[string]bool, err *error) *podnet.Keeper {
	return &podnet.Keeper{
		Interfaces: r.InterfaceManager, Attached: r.bridge, Log: slog.New(slog.DiscardHandler),
		Gone: func(_ context.Context, namespace, name, uid string) (bool, error) {
			return *err == nil && gone[namespace+"/"+name+"/"+uid], *err
		},
		Try: func(container string) (func(), bool) { return func() {}, container != "c-busy" },
	}
}

func (r rig) add(t *testing.T, p podnet.Pod) {
	t.Helper()
	defer r.installing(t, podnet.HostName(p.ContainerID, p.Interface))()

	if _, err := r.Add(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// holds checks that exactly these containers have a port, a device and a record.
func (r rig) holds(t *testing.T, containers ...string) {
	t.Helper()

	want := map[string]bool{}
	for _, c := range containers {
		want[podnet.HostName(c, "eth0")] = true
	}

	ports, err := r.bridge.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	devices, err := link.PodDevices()
	if err != nil {
		t.Fatal(err)
	}

	records, err := filepath.Glob(r.record("*"))
	if err != nil {
		t.Fatal(err)
	}

	for host := range want {
		_, port := ports[host]
		if device, record := slices.Contains(devices, host), slices.Contains(records, r.record(host)); !device || !port || !record {
			t.Errorf("%s: device %t, port %t, record %t", host, device, port, record)
		}
	}

	if len(devices) != len(want) || len(ports) != len(want) || len(records) != len(want) {
		t.Errorf("%d devices, %d ports, %d records, want %d", len(devices), len(ports), len(records), len(want))
	}
}

// record returns the path of a record.
func (r rig) record(host string) string { return filepath.Join(r.Dir, host+".json") }

// settled waits until the client's cache matches the database.
func (r rig) settled(t *testing.T, ports int) {
	t.Helper()
	testnode.Eventually(t, "cache", func() error {
		if all, err := r.bridge.List(t.Context()); err != nil || len(all) != ports {
			return errors.Join(err, errors.New("not yet"))
		}

		return nil
	})
}

func TestKeeperRestoresAndRemovesPorts(t *testing.T) {
	r := newRig(t)
	gone, unreachable := map[string]bool{}, error(nil)
	k := r.keeper(gone, &unreachable)
	pass := func() {
		t.Helper()

		if err := k.Pass(t.Context()); err != nil {
			t.Error(err)
		}
	}
	a, b := newPod(t, "c-a", "a", 3), newPod(t, "c-b", "b", 4)
	r.add(t, a)
	r.add(t, b)
	pass()
	r.holds(t, "c-a", "c-b")

	// Interfaces of other owners stay; leftovers of the agent are removed.
	testnode.Run(t, "ip", "link", "add", "vethforeign", "type", "veth", "peer", "name", "vethforeign2")
	t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", "vethforeign") })
	testnode.Run(t, "ip", "link", "add", "vethleft", "group", "7304814", "type", "veth", "peer", "name", "vethleft2")
	r.sw.Vsctl(t, "add-port", "br-int", "vethforeign", "--", "set", "Interface", "vethforeign", "external_ids:iface-id=other")
	pass()
	r.holds(t, "c-a", "c-b")

	if _, err := link.Get("vethforeign"); err != nil || !strings.Contains(r.sw.Vsctl(t, "list-ports", "br-int"), "vethforeign") {
		t.Errorf("the interface of another owner: %v", err)
	}

	if _, err := link.Get("vethleft"); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("a leftover device: %v", err)
	}

	// A deleted port is restored without the API server.
	unreachable = errors.New("no API server")
	gone["default/b/uid-b"] = true

	r.sw.Vsctl(t, "del-port", podnet.HostName("c-a", "eth0"))
	r.settled(t, 1)

	if err := k.Pass(t.Context()); !errors.Is(err, unreachable) {
		t.Errorf("without API server: %v", err)
	}

	r.settled(t, 2)

	unreachable = nil

	got := r.sw.Vsctl(t, "get", "Interface", podnet.HostName("c-a", "eth0"), "external_ids:iface-id", "external_ids:iface-id-ver", "external_ids:sandbox")
	if got != "default_a\nuid-a\nc-a\n" {
		t.Errorf("external_ids %q", got)
	}

	// A port that names another pod gets the pod's external_ids back.
	r.sw.Vsctl(t, "set", "Interface", podnet.HostName("c-a", "eth0"), "external_ids:iface-id-ver=other")
	testnode.Eventually(t, "the change in the cache", func() error {
		all, err := r.bridge.List(t.Context())
		if err == nil && all[podnet.HostName("c-a", "eth0")].UID != "other" {
			err = errors.New("not yet")
		}

		return err
	})

	unreachable = errors.New("no API server") // pod b, which is gone, stays
	if err := k.Pass(t.Context()); !errors.Is(err, unreachable) {
		t.Errorf("without API server: %v", err)
	}

	unreachable = nil

	if got := r.sw.Vsctl(t, "get", "Interface", podnet.HostName("c-a", "eth0"), "external_ids:iface-id-ver"); got != "uid-a\n" {
		t.Errorf("iface-id-ver %q, want uid-a", got)
	}

	testnode.Run(t, "ip", "link", "set", podnet.HostName("c-a", "eth0"), "down")
	pass()

	if l, err := link.Get(podnet.HostName("c-a", "eth0")); err != nil || !l.Up {
		t.Errorf("a device that was down: %+v, error %v", l, err)
	}

	// All parts of a deleted pod are removed, also when its namespace is gone, but not while a request
	// for it is under way.
	pass()
	r.holds(t, "c-a")
	busy := newPod(t, "c-busy", "busy", 5)
	gone["default/busy/uid-busy"] = true

	r.add(t, busy)
	pass()
	r.holds(t, "c-a", "c-busy")

	if err := r.Del(t.Context(), "c-busy", "eth0"); err != nil {
		t.Fatal(err)
	}

	testnode.Run(t, "ip", "link", "del", podnet.HostName("c-a", "eth0"))
	pass()
	r.holds(t)
}

// The later of two sandboxes of a pod keeps the port, also after the loss of the database.
func TestLaterSandboxKeepsPort(t *testing.T) {
	r := newRig(t)

	var none error

	k := r.keeper(nil, &none)
	old, later := newPod(t, "c-old", "a", 3), newPod(t, "c-later", "a", 3)
	r.add(t, old)
	r.add(t, later)

	for range 2 {
		if err := k.Pass(t.Context()); err != nil {
			t.Error(err)
		}

		ports, err := r.ovs.PodPorts(t.Context())
		if err != nil || len(ports) != 1 || ports[podnet.HostName("c-later", "eth0")] == nil {
			t.Errorf("ports %v, error %v", ports, err)
		}

		r.sw.Vsctl(t, "del-port", podnet.HostName("c-later", "eth0"))
		r.settled(t, 0)
	}

	if err := r.Del(t.Context(), "c-old", "eth0"); err != nil {
		t.Fatal(err)
	}
}

func TestCollectRemovesUnattached(t *testing.T) {
	r := newRig(t)

	var none error

	k := r.keeper(nil, &none)
	r.add(t, newPod(t, "c-a", "a", 3))
	r.add(t, newPod(t, "c-b", "b", 4))
	r.add(t, newPod(t, "c-busy", "busy", 5))
	testnode.Run(t, "ip", "link", "add", "vethleak", "group", "7304814", "type", "veth", "peer", "name", "vethleak2")

	if err := os.Remove(r.record(podnet.HostName("c-b", "eth0"))); err != nil { // created by an older agent
		t.Fatal(err)
	}

	if err := k.Collect(t.Context(), []podnet.Attachment{{"c-a", "eth0"}, {"c-x", "eth0"}}); err != nil {
		t.Fatal(err)
	}

	r.holds(t, "c-a", "c-busy")

	if err := k.Collect(t.Context(), []podnet.Attachment{{"c-busy", "eth0"}}); err != nil {
		t.Fatal(err)
	}

	r.holds(t, "c-busy")
}

// A pod that another plugin wired before the takeover has a port under another name. The port stays
// while the runtime lists its container.
func TestCollectKeepsPortsOfOtherPlugins(t *testing.T) {
	r := newRig(t)

	var none error

	k := r.keeper(nil, &none)

	const foreign = "9f0e1d2c3b4a596"
	testnode.Run(t, "ip", "link", "add", foreign, "type", "veth", "peer", "name", "9f0e1d2c3b4a-in")
	r.sw.Vsctl(t, "add-port", "br-int", foreign, "--", "set", "Interface", foreign, "external_ids:sandbox=c-old", "external_ids:iface-id=ns_old")

	there := func() bool {
		ports, err := r.ovs.PodPorts(t.Context())
		if err != nil {
			t.Fatal(err)
		}

		return ports[foreign] != nil
	}

	testnode.Eventually(t, "the port is seen", func() error {
		if !there() {
			return errors.New("not yet")
		}

		return nil
	})

	for _, tt := range []struct {
		valid []podnet.Attachment
		want  bool
	}{{[]podnet.Attachment{{"c-old", "eth0"}}, true}, {[]podnet.Attachment{{"c-a", "eth0"}}, false}} {
		if err := k.Collect(t.Context(), tt.valid); err != nil {
			t.Fatal(err)
		}

		if got := there(); got != tt.want {
			t.Errorf("valid attachments %v: port exists: %t", tt.valid, got)
		}
	}
}

// TestLostDatabaseIsRebuilt replaces the OVS database by an empty one.
func TestLostDatabaseIsRebuilt(t *testing.T) {
	r := newRig(t)

	var none error

	k := r.keeper(nil, &none)
	a := newPod(t, "c-a", "a", 3)
	a.IngressRate = 5e6
	r.add(t, a)

	wake := loop.NewSignal()

	stop := r.ovs.Watch(func(table, _ string) bool { return table == "Open_vSwitch" }, wake)
	defer stop()

	r.sw.RestartServer(t, func() {
		testnode.Eventually(t, "loss noticed", func() error {
			if r.ovs.Connected() {
				return errors.New("still connected")
			}

			return nil
		})
		os.Remove(r.sw.Dir + "/conf.db")
		testnode.Run(t, "ovsdb-tool", "create", r.sw.Dir+"/conf.db", platform.OVSFile("vswitch.ovsschema"))
	})
	r.sw.Vsctl(t, "init")
	// libovsdb 0.8.1 empties its cache without a lock when it reconnects. A concurrent read would trip
	// the race detector.
	<-wake

	ctx, cancel := context.WithCancel(t.Context())

	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()

	testnode.Eventually(t, "port with a queue of its own", func() error {
		if err := r.ovs.SyncBridge(t.Context(), ovs.Bridge{Name: "br-int", DatapathType: ovs.DatapathNetdev}); err != nil {
			return err
		}

		out, err := exec.Command("ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "get", "Port", podnet.HostName("c-a", "eth0"), "qos").CombinedOutput()
		if err == nil && strings.TrimSpace(string(out)) == "[]" {
			err = errors.New("OVS would delete the limit")
		}

		return err
	})
	r.installed(t, podnet.HostName("c-a", "eth0"))
	testnode.Eventually(t, "port", func() error { return r.Check(t.Context(), a) })
	cancel()

	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Without Recreate, a pod without port and device is removed, although its network namespace exists.
func TestKeeper_createsNoDeviceAgainByDefault(t *testing.T) {
	r := newRig(t)

	var none error

	k := r.keeper(nil, &none)
	p := newPod(t, "c-a", "a", 3)
	r.add(t, p)

	host := podnet.HostName("c-a", "eth0")
	testnode.Run(t, "ip", "link", "del", host)
	r.sw.Vsctl(t, "del-port", host)
	r.settled(t, 0)

	if err := k.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}

	r.holds(t)
}
