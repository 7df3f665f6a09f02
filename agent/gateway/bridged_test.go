package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestBridgedUserspace has the uplink in the bridge, and flows that separate host and OVN. On the
// userspace datapath OVS receives a packet before eBPF.
func TestBridgedUserspace(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.s.Backend = OpenFlow
	testBridged(r)
}

func TestBridgedKernel(t *testing.T) {
	for _, backend := range []Backend{EBPF, OpenFlow} {
		t.Run(string(backend), func(t *testing.T) {
			if got, why := ovs.DetectDatapath(link.HasGenericFamily); got != ovs.DatapathSystem {
				t.Skip("make test-vm runs this:", why)
			}

			r := newRig(t, ovs.DatapathSystem)
			r.s.Backend = backend
			testBridged(r)
		})
	}
}

// TestBridgedVLANUntagged checks that a host with untagged addresses is not moved behind a tag.
func TestBridgedVLANUntagged(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.sw.Daemon(t)
	r.s.Backend, r.s.Layout, r.s.VLAN, r.s.Encap = OpenFlow, verdict.Bridged, 100, netip.Prefix{}
	r.begin()
	testnode.Eventually(t, "the agent reports the cause", func() error {
		if m := r.gw.View().Missing(); !strings.Contains(m, "gateway VLAN 100: the host's addresses are on eth0 itself") {
			return errors.New(m)
		}

		return nil
	})
	r.hostAnswers()
}

func testBridged(r *rig) {
	r.bridged()
	held := r.hold()
	r.start()

	r.step("start", func(t *testing.T) {
		r.hostAnswers()

		if n, _ := r.gw.View().Node(); len(n.Addresses) != 1 || n.Addresses[0].String() != "172.30.0.11/24" || len(n.HostCIDRs) != 1 {
			t.Errorf("node %+v", n)
		}

		if got := r.sw.Vsctl(t, "get-fail-mode", "breth0"); strings.TrimSpace(got) != "standalone" {
			t.Errorf("fail mode %q: the host would be cut while vswitchd has no flows", got)
		}

		if err := r.programs(r.s.Backend == EBPF); err != nil {
			t.Error(err)
		}
	})
	r.step("patch port", func(t *testing.T) {
		r.addPatch()
		r.await("a flow to it", func() error { return r.outputs("patch-breth0_node1-to-br-int") })
		r.awaitReady()
	})
	r.step("vswitchd restarted", func(t *testing.T) {
		r.sw.KillVswitchd()
		testnode.Eventually(t, "loss noticed", func() error {
			if r.gw.View().Missing() == "" {
				return errors.New("still ready")
			}

			return nil
		})

		if r.s.Backend == EBPF {
			r.hostAnswers() // by the programs alone
		}

		r.sw.StartVswitchd(r.test)
		r.await("flows again", func() error { return r.outputs("patch-breth0_node1-to-br-int") })
		r.awaitReady()
	})
	r.step("uplink removed from the bridge", func(t *testing.T) {
		r.sw.Vsctl(t, "del-port", "breth0", "eth0")
		testnode.Eventually(t, "a port again", func() error {
			if r.repairs("uplink_port") == 0 {
				return errors.New("not repaired")
			}

			return nil
		})
		r.await("flows for its new number", func() error { return r.outputs("eth0") })
		r.awaitReady()
	})
	r.step("bond failover changes the MAC", func(t *testing.T) {
		testnode.Run(t, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:88")
		r.onPeer("ip", "neigh", "flush", "dev", "eth0")
		r.await("the bridge follows", func() error {
			if b, err := r.bridge(); err != nil || b.MAC.String() != "02:00:00:00:00:88" {
				return fmt.Errorf("MAC %s, error %w", b.MAC, err)
			}

			return nil
		})
		r.awaitReady()
		held.check(t)
	})

	for _, backend := range r.backends() {
		r.step(string(backend)+" follows "+string(r.s.Backend), func(t *testing.T) {
			r.stop()
			r.hostAnswers()
			r.follow(backend)
			held.check(t)
			r.hostAnswers()

			if err := r.programs(backend == EBPF); err != nil {
				t.Error(err)
			}

			if err := r.outputs("patch-breth0_node1-to-br-int"); err != nil {
				t.Error(err)
			}
		})
	}
}

// follow starts a gateway that does not know the Services yet. The former backend must keep
// deciding: flows or empty tables would give NodePorts to the host.
func (r *rig) follow(backend Backend) {
	r.t.Helper()
	before := r.s.Backend
	r.s.Backend = backend
	r.unknown.Store(true)
	r.begin()

	if before == EBPF && backend == EBPF {
		r.awaitReady() // with the tables that are pinned
	} else {
		testnode.Eventually(r.t, "waits for Services", func() error {
			if m := r.gw.View().Missing(); !strings.Contains(m, "Services are not known") {
				return fmt.Errorf("missing %q", m)
			}

			return nil
		})

		if err := r.programs(before == EBPF); err != nil {
			r.t.Error(err)
		}
	}

	r.hostAnswers()
	r.unknown.Store(false)
	r.awaitReady()
}

// backends returns the backends in the order of succession.
func (r *rig) backends() []Backend {
	switch {
	case r.s.Userspace():
		return []Backend{OpenFlow}
	case r.s.Backend == EBPF:
		return []Backend{EBPF, OpenFlow, EBPF}
	default:
		return []Backend{OpenFlow, EBPF, OpenFlow}
	}
}

// bridged wires the node like nics-to-bridge.
func (r *rig) bridged() {
	r.t.Helper()
	r.s.Layout, r.s.NotHost = verdict.Bridged, nil
	mac := r.uplink().MAC.String()
	testnode.Run(r.t, "ovs-vsctl", "--db="+r.sw.Address, "add-br", "breth0", "--", "set", "Bridge", "breth0",
		"datapath_type="+r.s.Datapath, "fail_mode=standalone", "other_config:hwaddr="+mac, "--",
		"br-set-external-id", "breth0", "bridge-uplink", "eth0", "--", "add-port", "breth0", "eth0")
	testnode.Run(r.t, "ip", "addr", "flush", "dev", "eth0")
	testnode.Run(r.t, "ip", "addr", "add", "172.30.0.11/24", "dev", "breth0")
	testnode.Run(r.t, "ip", "link", "set", "breth0", "up")

	if r.s.Userspace() {
		testnode.Run(r.t, "ethtool", "-K", "eth0", "tx", "off")
		r.onPeer("ethtool", "-K", "eth0", "tx", "off")
	}

	r.test.Cleanup(func() { testnode.Run(r.test, "ovs-vsctl", "--db="+r.sw.Address, "--no-wait", "del-br", "breth0") })
}

func (r *rig) uplink() link.Link {
	r.t.Helper()

	l, err := link.Get("eth0")
	if err != nil {
		r.t.Fatal(err)
	}

	return l
}

// addPatch creates the patch port, as ovn-controller does when the bridge is mapped.
func (r *rig) addPatch() {
	const ours, theirs = "patch-breth0_node1-to-br-int", "patch-br-int-to-breth0_node1"
	r.sw.Vsctl(r.t, "--may-exist", "add-br", "br-int", "--", "set", "Bridge", "br-int", "datapath_type="+r.s.Datapath, "fail_mode=secure", "--",
		"add-port", "breth0", ours, "--", "set", "Interface", ours, "type=patch", "options:peer="+theirs, "--",
		"add-port", "br-int", theirs, "--", "set", "Interface", theirs, "type=patch", "options:peer="+ours)
}

// outputs checks that a flow of the agent sends to the port, and that the port exists.
func (r *rig) outputs(port string) error {
	ports, err := r.ovs.OFPorts(r.t.Context(), "breth0")
	if err != nil {
		return err
	}

	out, err := exec.Command("ovs-ofctl", "-O", "OpenFlow14", "--no-names", "dump-flows", "unix:"+r.sw.Dir+"/breth0.mgmt", "cookie="+ovs.Cookie+"/"+ovs.CookieMask).CombinedOutput()
	if err != nil || ports[port] == 0 || !strings.Contains(string(out), fmt.Sprintf("output:%d", ports[port])) {
		return fmt.Errorf("no flow to port %d (%s): %w:\n%s", ports[port], port, err, out)
	}

	return nil
}

// programs checks whether the agent's programs are pinned.
func (r *rig) programs(want bool) error {
	_, err := os.Stat(r.s.PinDir + "/counters")
	if is := err == nil; is != want {
		return fmt.Errorf("programs pinned %t (%w), want %t", is, err, want)
	}

	return nil
}
