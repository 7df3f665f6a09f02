package gateway

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// TestLayoutUserspace changes the layout of a live node and back.
func TestLayoutUserspace(t *testing.T) {
	testLayout(t, newRig(t, ovs.DatapathNetdev), OpenFlow)
}

func TestLayoutKernel(t *testing.T) {
	for _, backend := range []Backend{EBPF, OpenFlow} {
		t.Run(string(backend), func(t *testing.T) {
			if got, why := ovs.DetectDatapath(link.HasGenericFamily); got != ovs.DatapathSystem {
				t.Skip("make test-vm runs this:", why)
			}

			testLayout(t, newRig(t, ovs.DatapathSystem), backend)
		})
	}
}

// testLayout keeps a connection between the host and its peer open throughout.
func testLayout(t *testing.T, r *rig, bridged Backend) {
	r.sw.Daemon(t)
	testnode.Run(t, "ip", "route", "add", "default", "via", "172.30.0.200")

	if r.s.Userspace() { // no checksum offload into OVS
		testnode.Run(t, "ethtool", "-K", "eth0", "tx", "off")
		r.onPeer("ethtool", "-K", "eth0", "tx", "off")
	}

	held, encap := r.hold(), r.s.Encap
	r.start()
	held.check(t)

	r.step("direct to bridged", func(t *testing.T) {
		r.relayout(verdict.Bridged, bridged, encap)
		held.check(t)
		r.hostAnswers()

		if n, _ := r.gw.View().Node(); len(n.Addresses) != 1 || n.Addresses[0].String() != "172.30.0.11/24" || len(n.NextHops) != 1 {
			t.Errorf("node %+v", n)
		}

		if out := testnode.Run(t, "ip", "route", "show", "default"); !strings.Contains(out, "via 172.30.0.200 dev breth0") {
			t.Errorf("default route %s", out)
		}

		if err := r.programs(bridged == EBPF); err != nil {
			t.Error(err)
		}

		if bridged == OpenFlow {
			r.flowsCount(t)
		}
	})
	r.step("restarted there", func(t *testing.T) {
		// Stands for a pin of the host's sockets, which the lab's kernel may not support.
		lookup, err := bpf.OpenLookup(bpf.LookupOptions{PinDir: r.s.PinDir})
		if err != nil {
			t.Fatal(err)
		}

		lookup.Close()
		r.relayout(verdict.Bridged, bridged, encap)
		held.check(t)

		if _, err := os.Stat(filepath.Join(r.s.PinDir, "lookup_targets")); err != nil {
			t.Error("a restart took pins away that are not the gateway's:", err)
		}
	})
	r.step("uplink taken out", func(t *testing.T) {
		r.sw.Vsctl(t, "del-port", "breth0", "eth0")
		testnode.Eventually(t, "uplink a port again", func() error {
			if got := r.sw.Vsctl(t, "list-ports", "breth0"); !strings.Contains(got, "eth0\n") {
				return fmt.Errorf("ports %q", got)
			}

			return nil
		})
		held.check(t)
		r.awaitReady()
		r.hostAnswers()
	})
	r.step("bridged to direct", func(t *testing.T) {
		r.relayout(verdict.Direct, EBPF, encap)
		held.check(t)
		r.hostAnswers()

		if out := testnode.Run(t, "ip", "route", "show", "default"); !strings.Contains(out, "via 172.30.0.200 dev eth0") {
			t.Errorf("default route %s", out)
		}

		if out := testnode.Run(t, "ip", "addr", "show", "dev", "breth0"); strings.Contains(out, "172.30.0.11/24") {
			t.Errorf("the bridge still has the host's address:\n%s", out)
		}

		if err := r.programs(true); err != nil {
			t.Error(err)
		}
	})
	r.step("bridged, bridge deleted", func(t *testing.T) {
		r.relayout(verdict.Bridged, bridged, encap)
		r.sw.Vsctl(t, "del-br", "breth0")
		testnode.Eventually(t, "the uplink has the host's address again", func() error {
			if out := testnode.Run(t, "ip", "addr", "show", "dev", "eth0"); !strings.Contains(out, "172.30.0.11/24") {
				return errors.New(out)
			}

			return nil
		})
		r.onPeer("ping", "-n", "-c1", "-w30", "-q", "172.30.0.11") // the rest follows: routes, the device leaves OVS
		held.check(t)
	})
	r.step("bridged again, cleaned up", func(t *testing.T) {
		r.relayout(verdict.Bridged, bridged, encap)
		held.check(t)
		r.stop()
		direct := r.s

		direct.Layout = verdict.Direct // an operator may not know of the move
		for _, set := range []Settings{r.s, direct} {
			if err := Cleanup(t.Context(), set, nil, slog.New(slog.DiscardHandler)); err == nil {
				t.Error("without OVSDB the gateway was taken off under the host")
			}

			if err := r.programs(bridged == EBPF); err != nil {
				t.Error(err)
			}
		}

		for range 2 {
			if err := Cleanup(t.Context(), r.s, r.ovs, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
		}

		held.check(t)
		r.hostAnswers()

		if got := r.sw.Vsctl(t, "list-br"); got != "" {
			t.Errorf("bridges %q are left", got)
		}

		if out := testnode.Run(t, "ip", "route", "show", "default"); !strings.Contains(out, "via 172.30.0.200 dev eth0") {
			t.Errorf("default route %s", out)
		}
	})
}

// relayout replaces the running gateway by one with another layout.
func (r *rig) relayout(layout verdict.Layout, backend Backend, encap netip.Prefix) {
	r.t.Helper()
	r.stop()

	r.s.Layout, r.s.Backend, r.s.NotHost = layout, backend, []string{"breth0"}
	if r.s.Encap = encap; layout == verdict.Bridged {
		r.s.NotHost, r.s.Encap = nil, netip.Prefix{}
	}

	r.start()
}

// held is a TCP connection between the peer and the host.
type held struct {
	conn net.Conn
	cmd  *exec.Cmd
}

// hold connects from the peer to an echo server of the host.
func (r *rig) hold() *held {
	r.t.Helper()

	l, err := net.Listen("tcp", "172.30.0.11:2222")
	if err != nil {
		r.t.Fatal(err)
	}

	r.t.Cleanup(func() { l.Close() })

	accepted := make(chan net.Conn, 1)

	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	// cat echoes the data at the host's end.
	cmd := exec.Command("nsenter", "-t", r.peer, "-n", "bash", "-c", "for try in {1..100}; do (exec 3<>/dev/tcp/172.30.0.11/2222; cat <&3 >&3) && break; sleep 0.1; done")
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}

	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })

	h := &held{cmd: cmd}

	testnode.Eventually(r.t, "connection of the peer's", func() error {
		select {
		case h.conn = <-accepted:
			return nil
		default:
			return errors.New("not accepted yet")
		}
	})
	r.t.Cleanup(func() { h.conn.Close() })

	return h
}

// check sends a word and expects the echo.
func (h *held) check(t *testing.T) {
	t.Helper()
	word := []byte(fmt.Sprintf("%s %d", t.Name(), time.Now().UnixNano()))

	_ = h.conn.SetDeadline(time.Now().Add(30 * time.Second)) // a limit for what is broken
	if _, err := h.conn.Write(word); err != nil {
		t.Fatalf("held connection: %v", err)
	}

	got := make([]byte, len(word))
	if _, err := io.ReadFull(h.conn, got); err != nil || string(got) != string(word) {
		t.Fatalf("held connection: got %q, error %v", got, err)
	}
}

// TestDedicatedKernel gives OVN its own NIC.
func TestDedicatedKernel(t *testing.T) {
	if got, why := ovs.DetectDatapath(link.HasGenericFamily); got != ovs.DatapathSystem {
		t.Skip("make test-vm runs this:", why)
	}

	r := newRig(t, ovs.DatapathSystem)
	testnode.Run(t, "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", r.peer)
	testnode.Run(t, "ip", "link", "set", "eth1", "up")

	r.s.Wiring = Wiring{
		Uplink: "eth1", Bridge: "breth1", Layout: verdict.Dedicated, Backend: EBPF, Datapath: ovs.DatapathSystem,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.5/24")}, NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}
	r.s.NotHost = []string{"breth1"}
	r.start()
	r.hostAnswers()

	if got := strings.TrimSpace(r.sw.Vsctl(t, "list-ports", "breth1")); got != "eth1" {
		t.Errorf("ports %q", got)
	}

	if n, _ := r.gw.View().Node(); len(n.Addresses) != 1 || n.Addresses[0].String() != "192.0.2.5/24" || len(n.HostCIDRs) != 1 {
		t.Errorf("node %+v", n)
	}

	testnode.Run(t, "ip", "addr", "add", "192.0.2.99/24", "dev", "eth1")
	testnode.Eventually(t, "refusal", func() error {
		if m := r.gw.View().Missing(); !strings.Contains(m, "eth1 has host address 192.0.2.99") {
			return fmt.Errorf("missing %q", m)
		}

		return nil
	})
	testnode.Run(t, "ip", "addr", "del", "192.0.2.99/24", "dev", "eth1")
	r.awaitReady()
	r.stop()

	if err := Cleanup(t.Context(), r.s, r.ovs, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}

	if got := r.sw.Vsctl(t, "list-br"); got != "" {
		t.Errorf("bridges %q are left", got)
	}

	r.hostAnswers()
}

// TestOrphanFilter covers an agent that is killed after it attached a filter and before it recorded
// it. The next agent, and Cleanup, find the filter by its name.
func TestOrphanFilter(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	r.s.forceClsact = true
	r.start()
	r.stop()

	pins, err := filepath.Glob(r.s.PinDir + "/uplink_ingress_clsact_*")
	if err != nil || len(pins) != 1 {
		t.Fatalf("pins %v, error %v", pins, err)
	}

	forget := func() {
		if err := os.Remove(pins[0]); err != nil {
			t.Fatal(err)
		}

		if !link.ClsactAttached(r.uplink().Index, "uplink_ingress", false) {
			t.Fatal("the filter has gone with its pin")
		}
	}
	count := func() int {
		filters, err := link.ClsactFilters(func(name string) bool { return name == "uplink_ingress" })
		if err != nil {
			t.Fatal(err)
		}

		return len(filters)
	}

	forget()
	r.start()

	if n := count(); n != 1 {
		t.Errorf("%d filters after a start over an orphan, want it replaced", n)
	}

	r.hostAnswers()
	r.stop()
	forget()

	if err := Cleanup(t.Context(), r.s, r.ovs, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}

	if n := count(); n != 0 {
		t.Errorf("%d filters after the cleanup", n)
	}

	r.hostAnswers()
}
