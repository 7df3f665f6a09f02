package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestMain(m *testing.M) { os.Exit(testnode.Main(m)) }

func TestRepairUserspace(t *testing.T) { testRepair(t, newRig(t, ovs.DatapathNetdev)) }

// TestRepairClsact is the same test on a kernel without tcx.
func TestRepairClsact(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.s.forceClsact = true
	testRepair(t, r)
}

func TestRepairKernel(t *testing.T) {
	if got, why := ovs.DetectDatapath(link.HasGenericFamily); got != ovs.DatapathSystem {
		t.Skip("make test-vm runs this:", why)
	}

	testRepair(t, newRig(t, ovs.DatapathSystem))
}

func testRepair(t *testing.T, r *rig) {
	testnode.Run(t, "sysctl", "-qw", "net.ipv4.ip_local_reserved_ports=8080")

	listener, err := net.Listen("tcp", "172.30.0.11:50123")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	r.sw.Daemon(t)
	r.start()

	r.step("start", func(t *testing.T) {
		r.hostAnswers()

		if got := r.sw.Vsctl(t, "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"); strings.TrimSpace(got) != `"physnet:breth0"` {
			t.Errorf("bridge mappings %s", got)
		}

		if err := r.hasFlows(); err != nil {
			t.Error(err)
		}

		if got, _ := link.ReadSysctl(reservedSysctl); got != "8080,30000-32767,49152-65535" {
			t.Errorf("reserved ports %s", got)
		}

		if got := r.gw.Stats().Listeners; got != 1 {
			t.Errorf("%d listeners in the SNAT range, want the one", got)
		}

		if got, _ := link.ReadSysctl("net/ipv6/conf/breth0/disable_ipv6"); got != "1" {
			t.Errorf("IPv6 on the bridge: disable_ipv6=%s", got)
		}
	})
	r.step("bridge deleted", func(t *testing.T) {
		before, err := r.bridge()
		if err != nil {
			t.Fatal(err)
		}

		r.sw.Vsctl(t, "del-br", "breth0")
		r.await("bridge made anew", func() error {
			now, err := r.bridge()
			if err != nil || now.Index == before.Index {
				return fmt.Errorf("index %d, error %w", now.Index, err)
			}

			return r.hasFlows()
		})
		r.awaitReady()

		if r.repairs("attach_bridge") == 0 {
			t.Error("no program attached to the new bridge")
		}
	})
	r.step("bridge's device deleted", func(t *testing.T) { r.deviceDeleted(t) })
	r.step("vswitchd restarted", func(t *testing.T) {
		r.sw.KillVswitchd()
		testnode.Eventually(t, "loss noticed", func() error {
			if r.gw.View().Missing() == "" {
				return errors.New("still ready")
			}

			return nil
		})
		r.hostAnswers()
		r.sw.StartVswitchd(r.test)
		r.await("flows again", r.hasFlows)
		r.awaitReady()
	})
	r.step("program detached", func(t *testing.T) { r.detached(t) })
	r.step("foreign programs", func(t *testing.T) {
		if r.clsact(t) {
			t.Skip("no tcx in this kernel: what a foreign filter sees is its priority's business")
		}

		r.foreignPrograms(t)
	})
	r.step("bridge down, address gone", func(t *testing.T) {
		testnode.Run(t, "ip", "addr", "flush", "dev", "breth0")
		testnode.Run(t, "ip", "link", "set", "breth0", "down")
		r.await("up with its address", func() error {
			b, err := r.bridge()
			if err != nil || !b.Up {
				return fmt.Errorf("up %t, error %w", b.Up, err)
			}

			if out := testnode.Run(t, "ip", "addr", "show", "dev", "breth0"); strings.Contains(out, "172.30.1.11/24") != r.s.Encap.IsValid() {
				return errors.New(out)
			}

			return nil
		})
	})
	r.step("MTU and MAC change", func(t *testing.T) {
		testnode.Run(t, "ip", "link", "set", "eth0", "mtu", "1400")
		testnode.Run(t, "ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
		r.onPeer("ip", "neigh", "flush", "dev", "eth0")
		r.await("the bridge follows", func() error {
			b, err := r.bridge()
			if err != nil || b.MTU != 1400 || b.MAC.String() != "02:00:00:00:00:77" {
				return fmt.Errorf("MTU %d, MAC %s, error %w", b.MTU, b.MAC, err)
			}

			return nil
		})
		r.awaitReady()
	})
	r.step("address added", func(t *testing.T) {
		testnode.Run(t, "ip", "addr", "add", "172.30.0.77/24", "dev", "eth0")
		r.await("a host address", func() error {
			n, _ := r.gw.View().Node()
			if len(n.HostCIDRs) != 2 {
				return fmt.Errorf("host addresses %v", n.HostCIDRs)
			}

			return nil
		})
		r.onPeer("ping", "-n", "-c1", "-W5", "-q", "172.30.0.77")
	})
	r.step("bridge taken over by a foreign port", func(t *testing.T) {
		r.sw.Vsctl(t, "add-port", "breth0", "nic0")
		testnode.Eventually(t, "refusal", func() error {
			if m := r.gw.View().Missing(); !strings.Contains(m, "breth0 has the port nic0") {
				return fmt.Errorf("missing %q", m)
			}

			return nil
		})
		testnode.Run(t, "ip", "addr", "add", "172.30.9.9/24", "dev", "breth0") // the host's, moved there

		for range 2 { // the second is taken when the round that the first woke is over
			r.gw.Trigger()
			testnode.Eventually(t, "a look at the address", func() error {
				if len(r.gw.wake) > 0 {
					return errors.New("not looked yet")
				}

				return nil
			})
		}

		if out := testnode.Run(t, "ip", "addr", "show", "dev", "breth0"); !strings.Contains(out, "172.30.9.9/24") {
			t.Errorf("the host's address is gone:\n%s", out)
		}

		r.hostAnswers()
		r.sw.Vsctl(t, "del-port", "breth0", "nic0")
		r.awaitReady()
	})
	r.step("uplink down and up", func(t *testing.T) {
		testnode.Run(t, "ip", "link", "set", "eth0", "down")
		testnode.Run(t, "ip", "link", "set", "eth0", "up")
		r.await("ready", func() error { return nil })
		r.awaitReady()
	})
	r.step("uplink replaced", func(t *testing.T) {
		testnode.Run(t, "ip", "link", "del", "eth0")
		testnode.Eventually(t, "loss noticed", func() error {
			if !strings.Contains(r.gw.View().Missing(), "eth0") {
				return fmt.Errorf("missing %q does not name the uplink", r.gw.View().Missing())
			}

			return nil
		})
		r.addUplink()
		r.awaitReady()
		r.hostAnswers()
	})
	r.step("stopped, started, cleaned up", func(t *testing.T) {
		r.stop()

		if pins, err := filepath.Glob(r.s.PinDir + "/uplink_ingress*"); err != nil || len(pins) == 0 {
			t.Errorf("a stopped agent leaves its programs attached: %v", err)
		}

		r.hostAnswers()
		r.start()
		r.hostAnswers()
		r.stop()

		for range 2 {
			if err := Cleanup(t.Context(), r.s, r.ovs, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
		}

		if got, _ := link.ReadSysctl(reservedSysctl); got != "8080" {
			t.Errorf("reserved ports %s, want only what was there", got)
		}

		if got := r.sw.Vsctl(t, "list-br"); got != "" {
			t.Errorf("bridges %q are left", got)
		}

		if _, err := os.Stat(r.s.PinDir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("pins are left: %v", err)
		}

		r.hostAnswers()
	})
}

// TestCleanupWithoutOVSDB removes what needs no OVSDB from a host whose NIC was never moved.
func TestCleanupWithoutOVSDB(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.start()
	r.stop()

	if err := Cleanup(t.Context(), r.s, nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}

	for _, path := range []string{r.s.PinDir, filepath.Join(r.s.RunDir, reservedRecord)} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}

	r.hostAnswers()
}

// TestBridgeIsRead checks the result of a pass that makes the bridge, and of one that finds its
// device with another MAC address than the uplink's.
func TestBridgeIsRead(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.begin()
	r.stop() // only for its parts; the bridge may exist by now

	observed := func() (Host, Node) {
		h, err := r.gw.view.observe()
		if err != nil {
			t.Fatal(err)
		}

		return h, nodeOf(h, r.s)
	}

	testnode.Eventually(t, "a bridge that is read", func() error {
		h, n := observed()

		h.Bridge = &link.Link{} // as before the pass
		if err := r.gw.topology.syncBridge(t.Context(), &h, n, true); err != nil {
			return err
		}

		if h.Bridge.Name != "breth0" {
			t.Fatalf("bridge %+v after a pass", h.Bridge)
		}

		return nil
	})

	h, n := observed()

	h.Uplink.MTU += 100 // the bridge's device follows later
	if err := r.gw.topology.syncBridge(t.Context(), &h, n, true); err == nil {
		if b, err := link.Get("breth0"); err != nil || b.MTU != h.Uplink.MTU {
			t.Errorf("no error while the bridge has MTU %d and the uplink %d (%v)", b.MTU, h.Uplink.MTU, err)
		}
	}
}

// deviceDeleted deletes the bridge's device under ovs-vswitchd. The kernel refuses that for its own
// datapath.
func (r *rig) deviceDeleted(t *testing.T) {
	if !r.s.Userspace() {
		if out, err := exec.Command("ip", "link", "del", "breth0").CombinedOutput(); err == nil || !strings.Contains(string(out), "not supported") {
			t.Errorf("ip link del breth0: %v: %s", err, out)
		}

		return
	}

	bridge := func() string { return r.sw.Vsctl(t, "get", "Bridge", "breth0", "_uuid") }

	// A round that saw the deleted bridge's row has perhaps already made the device anew.
	same, repairs := bridge(), r.repairs("bridge_device")
	for range 2 {
		before, err := r.bridge()
		if err != nil {
			t.Fatal(err)
		}

		testnode.Run(t, "ip", "link", "del", "breth0")
		r.await("device made anew", func() error {
			now, err := r.bridge()
			if err != nil || now.Index == before.Index || !now.Up {
				return fmt.Errorf("index %d, up %t, error %w", now.Index, now.Up, err)
			}

			return r.hasFlows()
		})
		r.awaitReady()
	}

	if n := r.repairs("bridge_device") - repairs; n != 2 {
		t.Errorf("%d repairs of the device, want 2", n)
	}

	if bridge() != same {
		t.Error("the bridge itself was made anew: its other ports were lost")
	}
}

// detached detaches the uplink's program in every possible way. The gateway must notice by itself.
func (r *rig) detached(t *testing.T) {
	ways := map[string]func(){
		"pin removed": func() { // the link's last reference
			if err := os.Remove(r.s.PinDir + "/uplink_ingress"); err != nil {
				t.Fatal(err)
			}
		},
		"link detached": func() { detachByID(t, pinnedLinkID(t, r.s.PinDir+"/uplink_ingress")) },
	}
	if r.clsact(t) {
		ways = map[string]func(){
			"filters deleted": func() { testnode.Run(t, "tc", "filter", "del", "dev", "eth0", "ingress") },
			"qdisc deleted":   func() { testnode.Run(t, "tc", "qdisc", "del", "dev", "eth0", "clsact") },
		}
	}

	for name, detach := range ways {
		before := r.repairs("attach_uplink")

		detach()
		r.await(name+": attached again", func() error {
			if r.repairs("attach_uplink") == before {
				return errors.New("not repaired")
			}

			return nil
		})
		r.awaitReady()
	}
}

// clsact reports whether the programs are attached as filters.
func (r *rig) clsact(t *testing.T) bool {
	pins, err := filepath.Glob(r.s.PinDir + "/uplink_ingress_clsact_*")
	if err != nil {
		t.Fatal(err)
	}

	return len(pins) > 0
}
