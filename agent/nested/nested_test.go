package nested_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/nested"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// rig is a VM whose NIC is eth0, with an InterfaceManager and a Keeper.
type rig struct {
	*podnet.InterfaceManager
	network *nested.Network
	keeper  *podnet.Keeper
	pins    string
	gone    map[string]bool // pods that have left the node
}

func newRig(t *testing.T) *rig {
	t.Helper()

	dir := t.TempDir()
	if err := os.Mkdir(dir+"/bpf", 0o700); err != nil {
		t.Fatal(err)
	}

	pins := dir + "/bpf/vm1"

	t.Cleanup(func() {
		if err := nested.Remove(pins); err != nil {
			t.Error(err)
		}

		_ = syscall.Unmount(dir+"/bpf", 0)
		_ = link.Delete("eth0") // it may be gone with the namespace of its other end
	})
	testnode.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", testnode.Netns(t))
	testnode.Run(t, "ip", "addr", "add", "10.0.0.11/24", "dev", "eth0")
	testnode.Run(t, "ip", "link", "set", "eth0", "up")

	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r := &rig{network: nested.New(pins, log), pins: pins, gone: map[string]bool{}}

	t.Cleanup(func() { r.network.Close() })

	r.InterfaceManager = &podnet.InterfaceManager{Connector: r.network, Dir: dir + "/pods"}
	r.keeper = &podnet.Keeper{
		Interfaces: r.InterfaceManager, Attached: r.network, Recreate: true, Log: log,
		Gone: func(_ context.Context, _, name, _ string) (bool, error) { return r.gone[name], nil },
		Try:  func(string) (func(), bool) { return func() {}, true },
	}

	return r
}

// sync attaches the programs to the NIC.
func (r *rig) sync(t *testing.T) {
	t.Helper()

	if err := r.trySync(); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) trySync() error {
	l, err := link.Get("eth0")
	if err != nil {
		return err
	}

	return r.network.Sync(nested.NIC{Ifindex: l.Index, Host: []netip.Addr{netip.MustParseAddr("10.0.0.11")}, Tags: []int{2, 3, 4}})
}

// pass runs one pass of the Keeper.
func (r *rig) pass(t *testing.T) {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	r.keeper.OnPass = func([]link.PodDevice) { cancel() }
	if err := r.keeper.Run(ctx); err != nil {
		t.Error(err)
	}
}

// newPod returns a pod with a tag, whose address ends with it.
func newPod(t *testing.T, name string, tag int) podnet.Pod {
	t.Helper()

	return podnet.Pod{
		ContainerID: "c-" + name, Netns: "/proc/" + testnode.Netns(t) + "/ns/net", Interface: "eth0",
		LogicalPort: "default_" + name, UID: "uid-" + name, MAC: net.HardwareAddr{0xfa, 0x16, 0x3e, 0, 1, byte(tag)}, Tag: tag,
		Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(tag)}), 24)},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.244.0.1")}, MTU: 1400,
		GatewayMACs: []net.HardwareAddr{{0xfa, 0x16, 0x3e, 0, 1, 1}},
	}
}

func (r *rig) mustAdd(t *testing.T, p podnet.Pod) (host string) {
	t.Helper()

	host, err := r.Add(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}

	return host
}

// reaches returns an error unless pod and VM reach each other.
func reaches(p podnet.Pod) error {
	for _, argv := range [][]string{
		{"ping", "-n", "-c1", "-W2", p.Addresses[0].Addr().String()},
		{"nsenter", "--net=" + p.Netns, "ping", "-n", "-c1", "-W2", "10.0.0.11"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, out)
		}
	}

	return nil
}

func TestNetwork_needsNIC(t *testing.T) {
	r := newRig(t)

	p := newPod(t, "a", 2)
	if _, err := r.Add(t.Context(), p); err == nil || !strings.Contains(err.Error(), "NIC is not known") {
		t.Errorf("add without a NIC: %v", err)
	}

	if left, err := link.PodDevices(); err != nil || len(left) > 0 {
		t.Errorf("devices %v are left, error %v", left, err)
	}

	if err := r.Del(t.Context(), p.ContainerID, p.Interface); err != nil {
		t.Errorf("delete without a NIC: %v", err)
	}
}

func TestNetwork_connectsPods(t *testing.T) {
	r := newRig(t)
	r.sync(t)
	a, b := newPod(t, "a", 2), newPod(t, "b", 3)
	r.mustAdd(t, a)

	host := r.mustAdd(t, b)
	for _, p := range []podnet.Pod{a, b} {
		if err := errors.Join(reaches(p), r.Check(t.Context(), p)); err != nil {
			t.Error(err)
		}
	}

	connections, err := r.network.List(t.Context())
	if err != nil || len(connections) != 2 || !connections[host].IsOf(b) || connections[host].IsOf(a) {
		t.Errorf("connections %v, error %v", connections, err)
	}

	limited := b
	if limited.IngressRate = 1e6; connections[host].IsOf(limited) {
		t.Error("the connection is that of a pod with a limit")
	}

	// The connections outlive the agent, and the next one finds them.
	r.network.Close()

	if err := reaches(a); err != nil {
		t.Errorf("without an agent: %v", err)
	}

	r.sync(t)

	if err := errors.Join(reaches(a), r.Check(t.Context(), a)); err != nil {
		t.Errorf("with the next agent: %v", err)
	}

	// The next pod with the tag keeps it when the former pod's interface is deleted late.
	c := newPod(t, "c", 2)
	r.mustAdd(t, c)

	if err := r.Del(t.Context(), a.ContainerID, a.Interface); err != nil {
		t.Error(err)
	}

	if err := errors.Join(reaches(c), r.Check(t.Context(), c)); err != nil {
		t.Errorf("after a late DEL: %v", err)
	}

	if r.Check(t.Context(), a) == nil {
		t.Error("a deleted interface passes the check")
	}
}

// Without a program, the packets of a pod that still runs would reach the host's stack.
func TestNetwork_releasedDeviceIsDown(t *testing.T) {
	r := newRig(t)
	r.sync(t)
	p := newPod(t, "a", 2)

	host := r.mustAdd(t, p)
	if err := r.network.Release(t.Context(), host); err != nil {
		t.Fatal(err)
	}

	if l, err := link.Get(host); err != nil || l.Up {
		t.Errorf("device %+v, error %v: want it down", l, err)
	}

	if connections, err := r.network.List(t.Context()); err != nil || len(connections) > 0 {
		t.Errorf("connections %v, error %v", connections, err)
	}

	if err := r.Del(t.Context(), p.ContainerID, p.Interface); err != nil {
		t.Error(err)
	}
}

func TestNetwork_keeperRepairs(t *testing.T) {
	r := newRig(t)
	r.sync(t)
	p := newPod(t, "a", 2)
	host := r.mustAdd(t, p)
	inPod := func(argv ...string) { testnode.Run(t, append([]string{"nsenter", "--net=" + p.Netns}, argv...)...) }
	index := func() int {
		l, err := link.Get(host)
		if err != nil {
			t.Fatal(err)
		}

		return l.Index
	}

	for name, damage := range map[string]func(){
		"route":             func() { testnode.Run(t, "ip", "route", "del", "10.244.0.2/32") },
		"neighbour":         func() { testnode.Run(t, "ip", "neigh", "del", "10.244.0.2", "dev", host) },
		"gateway":           func() { inPod("ip", "neigh", "del", "10.244.0.1", "dev", "eth0") },
		"wrong gateway":     func() { inPod("ip", "neigh", "replace", "10.244.0.1", "lladdr", "02:00:00:00:00:01", "dev", "eth0") },
		"device down":       func() { testnode.Run(t, "ip", "link", "set", host, "down") },
		"device":            func() { testnode.Run(t, "ip", "link", "del", host) },
		"the pod's program": func() { unpin(t, filepath.Join(r.pins, fmt.Sprintf("nested_pod_%d", index()))) },
		"the NIC's program": func() { unpin(t, filepath.Join(r.pins, "nested_wire")) },
	} {
		damage()

		if r.Check(t.Context(), p) == nil && name != "the NIC's program" {
			t.Errorf("%s: the check passes", name)
		}
		// The kernel releases an unpinned link later, and until then attaches no other.
		testnode.Eventually(t, name+": repair", func() error {
			err := r.trySync()
			r.pass(t)
			_, unpinned := os.Stat(filepath.Join(r.pins, "nested_wire"))

			return errors.Join(err, unpinned, r.Check(t.Context(), p))
		})

		if err := reaches(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The device of a pod that is gone is not created again, but removed.
	testnode.Run(t, "ip", "link", "del", host)

	r.gone["a"] = true
	r.pass(t)

	if left, err := podnet.Recorded(r.Dir); err != nil || len(left) > 0 {
		t.Errorf("records %v, error %v", left, err)
	}

	if left, err := link.PodDevices(); err != nil || len(left) > 0 {
		t.Errorf("devices %v, error %v", left, err)
	}
}

// A pod without a network namespace is removed, as its device cannot be created again.
func TestNetwork_keeperRemovesPodWithoutNetns(t *testing.T) {
	r := newRig(t)
	r.sync(t)
	p := newPod(t, "a", 2)
	host := r.mustAdd(t, p)

	file := filepath.Join(t.TempDir(), "netns") // as an unmounted namespace leaves it
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	p.Netns = file
	record := filepath.Join(r.Dir, host+".json")

	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}

	text = []byte(strings.Replace(string(text), "/proc/", file+`","x":"/proc/`, 1))
	if err := os.WriteFile(record, text, 0o600); err != nil {
		t.Fatal(err)
	}

	removed := ""
	r.OnRemoved = func(host string) { removed = host }

	var logged bytes.Buffer

	r.keeper.Log = slog.New(slog.NewTextHandler(&logged, nil))

	testnode.Run(t, "ip", "link", "del", host)
	r.pass(t)

	if removed != host || strings.Contains(logged.String(), "again") || strings.Contains(logged.String(), "not in the desired state") {
		t.Errorf("removed %q, want %q; logged %s", removed, host, logged.String())
	}
}

// unpin removes a pin, by which the kernel detaches a tcx link that no other process holds.
func unpin(t *testing.T, path string) {
	t.Helper()

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
