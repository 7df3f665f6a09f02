package podnet_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet"
	"github.com/ovn-ebpf/ovn-ebpf/agent/podnet/bridge"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

func TestHostName(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 4)
	seen := map[string]bool{}

	for _, id := range []string{long, long + "x", "", "a"} {
		for _, iface := range []string{"eth0", "net1"} {
			n := podnet.HostName(id, iface)
			if len(n) != 15 || seen[n] || n != podnet.HostName(id, iface) {
				t.Errorf("%q of %q: want 15 characters, unique and stable", n, id)
			}

			seen[n] = true
		}
	}
}

// rig is a node with br-int and a stand-in for ovn-controller, which marks ports as installed.
type rig struct {
	*podnet.InterfaceManager
	bridge *bridge.Bridge
	ovs    *ovs.Client
	sw     *testnode.Switch
}

func newRig(t testing.TB) rig {
	t.Helper()
	sw := testnode.StartSwitch(t, true)

	c, err := ovs.Dial(t.Context(), sw.Address)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(c.Close)

	if err := c.SyncBridge(t.Context(), ovs.Bridge{Name: "br-int", DatapathType: ovs.DatapathNetdev}); err != nil {
		t.Fatal(err)
	}

	steal, err := bpf.NewSteal(bpf.ClsactFuncs{Attach: link.AttachClsact, Detach: link.DetachClsact})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { steal.Close() })

	b := &bridge.Bridge{OVS: c, Name: "br-int", Steal: steal}

	return rig{&podnet.InterfaceManager{Connector: b, NoChecksum: true, Dir: sw.Dir + "/pods"}, b, c, sw}
}

// installed marks the port as installed, as ovn-controller does.
func (r rig) installed(t *testing.T, port string) {
	testnode.Eventually(t, "port "+port, func() error {
		return exec.Command("ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "set", "Interface", port, "external_ids:ovn-installed=true").Run()
	})
}

// installing marks the port as installed until stop is called, also when the port is replaced.
func (r rig) installing(t testing.TB, port string) (stop func()) {
	t.Helper()

	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)

		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				// Fails while the port does not exist.
				_ = exec.Command("ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "set", "Interface", port, "external_ids:ovn-installed=true").Run()
			}
		}
	}()

	return func() {
		close(done)
		<-ended
	}
}

func newPod(t testing.TB, container, name string, host byte) podnet.Pod {
	t.Helper()

	return podnet.Pod{
		ContainerID: container, Netns: "/proc/" + testnode.Netns(t) + "/ns/net", Interface: "eth0",
		LogicalPort: "default_" + name, UID: "uid-" + name, MAC: net.HardwareAddr{0x0a, 0x58, 10, 244, 0, host},
		Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, 0, host}), 24)},
		Gateways:  []netip.Addr{netip.MustParseAddr("10.244.0.1")}, MTU: 1400,
	}
}

func TestAddCheckDel(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()

	a, b := newPod(t, "c-a", "a", 3), newPod(t, "c-b", "b", 4)
	for _, p := range []podnet.Pod{a, b, a} { // the last one is a repeated ADD
		stop := r.installing(t, podnet.HostName(p.ContainerID, p.Interface))
		host, err := r.Add(ctx, p)

		stop()

		if err != nil || host != podnet.HostName(p.ContainerID, "eth0") {
			t.Fatalf("add %s: host name %q, error %v", p.LogicalPort, host, err)
		}
	}

	got := r.sw.Vsctl(t, "--columns=external_ids", "--format=csv", "--no-headings", "list", "Interface", podnet.HostName("c-a", "eth0"))
	for _, want := range []string{"iface-id=default_a", "iface-id-ver=uid-a", `attached_mac=""0a:58:0a:f4:00:03""`, `ip_addresses=""10.244.0.3""`, "sandbox=c-a"} {
		if !strings.Contains(got, want) {
			t.Errorf("external_ids %s: no %s", got, want)
		}
	}

	if got := r.sw.Vsctl(t, "get", "Port", podnet.HostName("c-a", "eth0"), "other_config:transient"); got != "\"true\"\n" {
		t.Errorf("transient is %s", got)
	}

	for _, p := range []podnet.Pod{a, b} {
		if err := r.Check(ctx, p); err != nil {
			t.Error(err)
		}
	}

	if l, err := link.Get(podnet.HostName("c-a", "eth0")); err != nil || !link.ClsactAttached(l.Index, "ovnebpf_steal", false) {
		t.Errorf("the host's stack receives the pod's packets, error %v", err)
	}
	// ovs-vswitchd may set a new device's flags to down, when it releases an earlier one of its name.
	testnode.Run(t, "ip", "link", "set", podnet.HostName("c-a", "eth0"), "down")

	if err := r.bridge.Await(ctx, podnet.HostName("c-a", "eth0")); err != nil {
		t.Error(err)
	}

	if l, err := link.Get(podnet.HostName("c-a", "eth0")); err != nil || !l.Up {
		t.Errorf("an installed port's device that was down: %+v, error %v", l, err)
	}

	traffic(t, r, a)

	for _, id := range []string{"iface-id", "iface-id-ver", "sandbox", "attached_mac", "ovn-installed"} {
		was := strings.TrimSpace(r.sw.Vsctl(t, "get", "Interface", podnet.HostName("c-a", "eth0"), "external_ids:"+id))
		for _, value := range []string{"other", was} {
			r.sw.Vsctl(t, "set", "Interface", podnet.HostName("c-a", "eth0"), "external_ids:"+id+"="+value)
			testnode.Eventually(t, "check of "+id, func() error {
				if err := r.Check(ctx, a); (err == nil) != (value == was) || err != nil && !strings.Contains(err.Error(), id) {
					return fmt.Errorf("%s is %s: check says %w", id, value, err)
				}

				return nil
			})
		}
	}

	if err := r.Del(ctx, "c-a", "eth0"); err != nil {
		t.Fatal(err)
	}

	if err := r.Check(ctx, a); err == nil {
		t.Error("a deleted interface passes the check")
	}

	if err := r.Del(ctx, "unknown", "eth0"); err != nil {
		t.Errorf("unknown container: %v", err)
	}

	if err := link.Delete(podnet.HostName("c-b", "eth0")); err != nil { // as if the namespace had been removed
		t.Fatal(err)
	}

	if err := r.Del(ctx, "c-b", "eth0"); err != nil {
		t.Fatal(err)
	}

	if got := r.sw.Vsctl(t, "list-ports", "br-int"); got != "" {
		t.Errorf("ports %q are left", got)
	}
}

// traffic checks that pod a reaches pod b through the switch, and receives each reply once.
func traffic(t *testing.T, r rig, a podnet.Pod) {
	t.Helper()

	for _, wait := range [][]string{
		{"ovs-ofctl", "add-flow", "unix:" + r.sw.Dir + "/br-int.mgmt", "actions=NORMAL"},
		{"nsenter", "--net=" + a.Netns, "ping", "-n", "-c1", "-W1", "10.244.0.4"},
	} {
		testnode.Eventually(t, wait[0], func() error { // ovs-vswitchd may still be applying the port
			out, err := exec.Command(wait[0], wait[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}

			return nil
		})
	}

	out := testnode.Run(t, "nsenter", "--net="+a.Netns, "ping", "-n", "-c2", "-i0.1", "-W5", "10.244.0.4")
	if strings.Contains(out, "DUP") || !strings.Contains(out, "2 received") {
		t.Error(out)
	}
}

// A pod stays reachable after its device was recreated, also when ovs-vswitchd looks only
// afterwards.
func TestReplacedDeviceStaysReachable(t *testing.T) {
	r := newRig(t)
	a, b := newPod(t, "c-a", "a", 3), newPod(t, "c-b", "b", 4)
	r.add(t, a)
	r.add(t, b)
	traffic(t, r, a)

	host := podnet.HostName("c-a", "eth0")

	was, err := link.Get(host)
	if err != nil {
		t.Fatal(err)
	}

	testnode.Run(t, "nsenter", "--net="+a.Netns, "ip", "link", "set", "eth0", "mtu", "1280") // a wrong MTU
	release := r.sw.HoldVswitchd(t)
	stop := r.installing(t, host)
	ended := make(chan error, 1)

	go func() {
		_, err := r.Add(t.Context(), a)
		ended <- err
	}()

	testnode.Eventually(t, "port goes", func() error {
		if _, _, err := r.ovs.Port(t.Context(), host); err == nil {
			if now, err := link.Get(host); err == nil && now.Index == was.Index {
				return errors.New("the port still exists")
			}
		}

		return nil
	})
	time.Sleep(300 * time.Millisecond) // gives an implementation that does not wait time to fail
	release()

	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	stop()
	traffic(t, r, a)
}

func TestFailedAddLeavesNothing(t *testing.T) {
	r := newRig(t)
	p := newPod(t, "c-x", "x", 5)
	// A watcher may see the port before the transaction's caller has its answer. Then cancelling ends
	// the transaction.
	for range 10 {
		if err := r.cancelledAdd(t, p); strings.Contains(err.Error(), "ovn-controller") {
			return
		}
	}

	t.Error("no error names ovn-controller")
}

// cancelledAdd cancels an ADD when its port exists, and fails the test if any part is left.
func (r *rig) cancelledAdd(t *testing.T, p podnet.Pod) error {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	host := podnet.HostName(p.ContainerID, p.Interface)
	ended := make(chan error, 1)

	go func() {
		_, err := r.Add(ctx, p)
		ended <- err
	}()

	testnode.Eventually(t, "port", func() error {
		_, _, err := r.ovs.Port(t.Context(), host)
		return err
	})
	cancel()

	err := <-ended
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}

	if _, err := link.Get(host); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("the device still exists: %v", err)
	}

	testnode.Eventually(t, "port is gone", func() error {
		if _, _, err := r.ovs.Port(t.Context(), host); !errors.Is(err, ovs.ErrNotFound) {
			return fmt.Errorf("the port still exists: %w", err)
		}

		return nil
	})

	return err
}
