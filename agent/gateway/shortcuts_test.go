package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

func TestNoShortcuts(t *testing.T) {
	base := Settings{Shortcuts: true, Wiring: Wiring{Datapath: ovs.DatapathSystem}}
	for name, tt := range map[string]struct {
		change func(*Settings)
		want   string
	}{
		"supported": {func(*Settings) {}, ""},
		"bridged":   {func(s *Settings) { s.Layout = verdict.Bridged }, ""},
		"off":       {func(s *Settings) { s.Shortcuts = false }, "off"},
		"none":      {func(s *Settings) { s.NoGateway = true }, "no gateway"},
		"no eBPF":   {func(s *Settings) { s.NoEBPF = "old kernel" }, "old kernel"},
		"openflow":  {func(s *Settings) { s.Layout, s.Backend = verdict.Bridged, OpenFlow }, "openflow"},
		"dedicated": {func(s *Settings) { s.Layout = verdict.Dedicated }, "dedicated"},
		"local":     {func(s *Settings) { s.Local = true }, "local gateway mode"},
		"VLAN":      {func(s *Settings) { s.Layout, s.VLAN = verdict.Bridged, 7 }, "VLAN"},
		"userspace": {func(s *Settings) { s.Datapath = ovs.DatapathNetdev }, "userspace"},
	} {
		s := base
		tt.change(&s)

		if got := s.NoShortcuts(); got != tt.want && (tt.want == "" || !strings.Contains(got, tt.want)) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// newShortcutManager returns the manager of a node, and programs that they do not use yet. The node
// has flows and settings of Open vSwitch, but packets do not pass it.
func newShortcutManager(t *testing.T) (*rig, *ShortcutManager, *bpf.Gateway) {
	t.Helper()
	r := newRig(t, ovs.DatapathNetdev)
	s := r.s

	s.Shortcuts, s.Datapath, s.Encap = true, ovs.DatapathSystem, netip.Prefix{}
	for _, name := range []string{ovs.IntegrationBridge, s.Bridge} {
		if err := r.ovs.SyncBridge(t.Context(), ovs.Bridge{Name: name, DatapathType: ovs.DatapathNetdev}); err != nil {
			t.Fatal(err)
		}
	}

	gw, err := bpf.Open(bpf.Options{PinDir: s.PinDir, Clsact: clsactFuncs(), Shortcuts: bpf.ShortcutOptions{On: true, Entries: 64}, Config: bpf.Config{Config: verdict.Config{
		NodeMAC: verdict.MAC{2, 0, 0, 0, 0, 0x11}, SNATPorts: s.SNATPorts, GenevePort: model.TunnelPort,
	}}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = gw.Detach(); gw.Close() })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	p := NewShortcutManager(s, r.ovs, log)
	p.record = newRecorder(log)

	return r, p, gw
}

// Pods' devices have the program, and may have shortcuts unless they are limited, or something on
// the node must see every packet.
func TestPods(t *testing.T) {
	r, p, gw := newShortcutManager(t)
	s := r.s

	var devices []int

	for i := range 2 {
		name := fmt.Sprintf("pod%d", i)
		testnode.Run(t, "ip", "link", "add", name, "type", "veth", "peer", "name", name+"p")
		t.Cleanup(func() { _ = link.Delete(name) })
		devices = append(devices, r.index(t, name))
	}

	counts := func() bpf.ShortcutCounts {
		c, err := bpf.ReadShortcutCounts(s.PinDir)
		if err != nil {
			t.Fatal(err)
		}

		return c
	}
	want := func(what string, attached, allowed int) {
		t.Helper()
		testnode.Eventually(t, what, func() error {
			pods, err := gw.Pods()
			if got := counts().Pods; err != nil || len(pods) != attached || got != allowed {
				return fmt.Errorf("%d attached and %d allowed, want %d and %d: %w", len(pods), got, attached, allowed, err)
			}

			return nil
		})
	}
	because := func(limited int, causes ...string) {
		t.Helper()
		testnode.Eventually(t, "the reasons", func() error {
			got := p.record.read().Shortcuts
			if got == nil || got.Limited != limited || !slices.Equal(got.Causes, causes) {
				return fmt.Errorf("%+v, want %d limited and %q", got, limited, causes)
			}

			return nil
		})
	}

	p.Add(link.PodDevice{Ifindex: devices[0], MTU: 1400})
	because(0, "OVSDB not read yet", "flows of br-int not read yet")
	p.usePrograms(gw)
	want("flows are not read yet", 1, 0)
	p.Add(link.PodDevice{Ifindex: devices[1], MTU: 1400, Limited: true})
	want("a limited pod", 2, 0)

	testnode.Background(t, p.Run)
	want("flows and settings are read", 2, 1)
	because(1)

	vsctl := func(args ...string) {
		t.Helper()
		testnode.Run(t, append([]string{"ovs-vsctl", "--db=" + r.sw.Address, "--no-wait"}, args...)...)
	}
	for _, bridge := range []string{ovs.IntegrationBridge, s.Bridge, ovs.IntegrationBridge} {
		vsctl("--", "--id=@m", "create", "Mirror", "name=m", "--", "set", "Bridge", bridge, "mirrors=@m")
		want("a mirror on "+bridge, 2, 0)
		because(1, "a mirror on "+bridge)
		vsctl("clear", "Bridge", bridge, "mirrors")
		want("no mirror on "+bridge, 2, 1)
	}

	vsctl("set", "Open_vSwitch", ".", "other_config:hw-offload=true")
	want("hardware offload", 2, 0)
	vsctl("remove", "Open_vSwitch", ".", "other_config", "hw-offload")
	want("no hardware offload", 2, 1)

	flow := func(flow string) {
		t.Helper()
		testnode.Eventually(t, flow, func() error {
			return exec.Command("ovs-ofctl", "add-flow", "unix:"+filepath.Join(r.sw.Dir, ovs.IntegrationBridge+".mgmt"), flow).Run()
		})
	}
	before := counts().Epoch

	flow("ip,actions=drop")
	testnode.Eventually(t, "an epoch at once, and one after revalidation", func() error {
		if now := counts().Epoch; now < before+2 {
			return fmt.Errorf("still %d", now)
		}

		return nil
	})
	flow("ip,nw_src=192.0.2.1,actions=controller(userdata=00.00.00.07.00.00.00.00),output:1")
	want("a logged flow", 2, 0)
	because(1, "flows of br-int log, sample, meter or queue packets, or are of stateless ACLs")
	p.Sync([]link.PodDevice{{Ifindex: devices[0], MTU: 1400}})
	want("a pod that is not in the list yet", 2, 0)
	p.Add(link.PodDevice{Ifindex: 1 << 30, MTU: 1400})
	p.Add(link.PodDevice{Ifindex: devices[0], MTU: 1400})

	if fault := p.record.read().Degraded[partShortcuts]; !strings.Contains(fault, "interface 1073741824") {
		t.Errorf("a pod without a device: degraded %q", fault)
	}

	if err := link.Delete("pod1"); err != nil {
		t.Fatal(err)
	}

	p.Sync([]link.PodDevice{{Ifindex: devices[0], MTU: 1400}})
	want("a pod that is gone", 1, 0)

	if fault := p.record.read().Degraded[partShortcuts]; fault != "" {
		t.Errorf("degraded: %s", fault)
	}
}

// While flows or settings cannot be read, no pod has shortcuts, and the part is degraded.
func TestPodsFailClosed(t *testing.T) {
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	sw := testnode.StartSwitch(t, false) // no ovs-vswitchd

	o, err := ovs.Dial(t.Context(), sw.Address)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(o.Close)
	p := NewShortcutManager(Settings{Shortcuts: true, OVSRunDir: sw.Dir, Wiring: Wiring{Datapath: ovs.DatapathSystem}}, o, log)
	p.record = newRecorder(log)
	stop := testnode.Background(t, p.Run)
	testnode.Eventually(t, "a degraded part", func() error {
		if p.record.read().Degraded[partShortcuts] == "" {
			return errors.New("not yet")
		}

		return nil
	})
	stop()

	if what := p.observers[inFlows]; what != ovs.NotRead {
		t.Errorf("flows are %q", what)
	}
}
