package status

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/cniconf"
	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/management"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
)

// right returns the facts of a healthy node.
func right() Facts {
	var f Facts

	f.Record.Node = "node1"
	f.Record.Wiring = Wiring{Layout: "direct", Backend: "ebpf", Mode: "shared", Datapath: "system", Uplink: "eth0", Bridge: "breth0"}
	f.Record.Ports.First, f.Record.Ports.Last = 49152, 65535
	f.Agent = Agent{Served: true, SNATPorts: 16384}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	device := func(name string, index int) Device {
		return Device{Link: link.Link{Name: name, Index: index, MAC: mac, Up: true}}
	}
	f.Host = Host{Uplink: device("eth0", 2), Bridge: device("breth0", 3), Management: device(management.Name, 4), Addresses: []link.Address{
		{Prefix: netip.MustParsePrefix("192.0.2.1/24"), Device: "eth0"}, {Prefix: netip.MustParsePrefix("10.244.0.2/24"), Device: management.Name},
	}}
	f.Switch = Switch{ExternalIDs: map[string]string{"ovn-remote": "tcp:192.0.2.9:6642", "ovn-encap-ip": "192.0.2.1"}, Mapping: "breth0", Flows: 5}
	f.Programs = Programs{
		Hooks:    []bpf.Hooked{{Name: "uplink_ingress", Ifindex: 2}, {Name: "bridge_ingress", Bridge: true, Ifindex: 3}},
		Counters: []bpf.Counter{{Port: "host", Direction: "rx", Packets: 7}, {Port: "host", Direction: "rx", Packets: 1}},
	}
	f.Controller = Controller{Running: true, Connected: true}

	return f
}

// TestWarning: a warning about the environment has a line with what helps, and leaves the node
// right.
func TestWarning(t *testing.T) {
	f := right()
	f.Agent.Warnings = []string{"any pod can abort ovs-vswitchd; use Open vSwitch 3.3"}
	got := Judge(f)

	shown := slices.ContainsFunc(got.Checks, func(c Check) bool { return c.Name == "environment" && c.Detail == f.Agent.Warnings[0] })
	if got.State != Right || !shown {
		t.Errorf("%s, checks %+v", got.State, got.Checks)
	}
}

// Each fault makes its own check fail, and no other.
func TestFaultFailsOwnCheck(t *testing.T) {
	gone := errors.New("gone")
	bridged := func(f *Facts) {
		f.Record.Wiring.Layout, f.Switch.Member = "bridged", "breth0"
		f.Host.Addresses[0].Device = "breth0"
	}

	tests := []struct {
		name  string
		broke func(*Facts)
		check string // "": no check fails
		state State
		say   string
	}{
		{"right", func(*Facts) {}, "", Right, ""},
		{"bridged, right", bridged, "", Right, ""},
		{"no gateway, right", func(f *Facts) {
			f.Record.Wiring.Mode = "none"
			f.Host.Bridge.Err, f.Switch.Mapping, f.Switch.Flows, f.Programs.Hooks = gone, "", 0, nil
		}, "", Right, ""},
		{"agent not ready", func(f *Facts) { f.Agent.Missing = []string{"a", "b"} }, "agent", Broken, "not ready: a; b"},
		{"agent without a part", func(f *Facts) { f.Agent.Degraded = []string{"bind_gate"} }, "agent", Degraded, "ready, without bind_gate"},
		{"kube-proxy runs", func(f *Facts) { f.Agent.Faults = []string{"kube-proxy runs; delete it"} }, "environment", Degraded, "kube-proxy runs"},
		{"a firewall drops pods' packets, no agent", func(f *Facts) {
			f.Host.Forward = "IPv4 packets of pods are dropped by ip x f (policy drop); accept them"
		}, "environment", Degraded, "dropped by ip x f (policy drop)"},
		{"full tables", func(f *Facts) {
			f.Agent.Degraded, f.Agent.Full = []string{"tables"}, []string{"services (12 entries)", "host_addrs (1 entries)"}
		}, "tables", Degraded, "full, these have no room for: services (12 entries), host_addrs (1 entries)"},
		{"drained", func(f *Facts) { f.Agent.Drained = true }, "drained", Degraded, "the gateway is drained"},
		{"agent has ended with an error", func(f *Facts) { f.Agent.Err, f.Record.Failure = gone, "no uplink" }, "agent", Degraded, "has ended with an error: no uplink"},
		{"agent could never start", func(f *Facts) {
			f.Agent.Err, f.Record.Wiring, f.Record.Failure = gone, Wiring{}, "no uplink"
			f.Host.Uplink.Err, f.Controller = gone, Controller{}
		}, "agent", Broken, "has ended with an error: no uplink"},
		{"agent waits to start", func(f *Facts) {
			f.Agent.Missing, f.Record.Wiring = []string{"waits for Open vSwitch"}, Wiring{}
			f.Host.Uplink.Err, f.Controller = gone, Controller{}
		}, "agent", Broken, "waits for Open vSwitch"},
		{"agent serves nothing", func(f *Facts) { f.Agent = Agent{} }, "agent", Degraded, "does not serve"},
		{"no uplink", func(f *Facts) { f.Host.Uplink.Err = gone; f.Programs.Hooks[0].Ifindex = 2 }, "uplink", Broken, "gone"},
		{"no bridge", func(f *Facts) { f.Host.Bridge.Err = gone }, "bridge", Broken, "gone"},
		{"bridged, uplink not in it", func(f *Facts) { bridged(f); f.Switch.Member = "" }, "bridge", Broken, "eth0 is not a port of breth0"},
		{"bridged, address on the uplink", func(f *Facts) { bridged(f); f.Host.Addresses[0].Device = "eth0" }, "uplink", Broken, "breth0 has no address"},
		{"range nearly full", func(f *Facts) { f.Agent.PortsUsed = 15000 }, "ports", Degraded, "15000 of 16384"},
		{"host listens in it", func(f *Facts) { f.Host.Listeners = 2 }, "ports", Degraded, "2 host sockets"},
		{"program on another device", func(f *Facts) { f.Programs.Hooks[1].Ifindex = 9 }, "programs", Broken, "not attached: bridge_ingress"},
		{"foreign program before ours", func(f *Facts) { f.Programs.Hooks[0].Ahead = 1 }, "programs", Degraded, "1 programs of others"},
		{"no eBPF, direct", func(f *Facts) { f.Record.Wiring.NoEBPF = "kernel lacks it" }, "programs", Broken, "no North-South: kernel lacks it"},
		{"no eBPF, bridged", func(f *Facts) {
			bridged(f)
			f.Record.Wiring.NoEBPF, f.Record.Wiring.Backend = "kernel lacks it", "openflow"
		}, "programs", Degraded, "flows do their work"},
		{"no cgroup2", func(f *Facts) { f.Programs.NoService = []string{"sock_connect4"} }, "sockets", Degraded, "1 programs missing"},
		{"late binds", func(f *Facts) { f.Programs.NoBind = []string{"gate_connect4"} }, "sockets", Degraded, "seen late"},
		{"another network's configuration later", func(f *Facts) { f.CNI.Others = []cniconf.OtherNetwork{{Path: "/etc/cni/net.d/87-podman.conflist"}} }, "", Right, ""},
		{"another network's configuration earlier", func(f *Facts) {
			f.Record.Paths.ConfList = "/etc/cni/net.d/10-ovn-kubernetes.conflist"
			f.CNI.Others = []cniconf.OtherNetwork{{Path: "/etc/cni/net.d/10-flannel.conflist", Plugin: "flannel", Earlier: true}}
		}, "cni", Broken, "new pods get another network: the runtime takes /etc/cni/net.d/10-flannel.conflist (flannel) before 10-ovn-kubernetes.conflist"},
		{"no shortcuts asked for", func(f *Facts) { f.Programs.ShortcutsErr = gone }, "", Right, ""},
		{"shortcuts not pinned", func(f *Facts) { f.Record.Wiring.Shortcuts, f.Programs.ShortcutsErr = true, gone }, "shortcuts", Degraded, "none: gone"},
		{"ovn-controller gone", func(f *Facts) { f.Controller = Controller{} }, "ovn", Broken, "does not run"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := right()
			tt.broke(&f)

			got := Judge(f)
			if got.State != tt.state {
				t.Errorf("%s, want %s", got.State, tt.state)
			}

			for _, c := range got.Checks {
				switch {
				case c.Name != tt.check && c.State != Right:
					t.Errorf("%s is %s: %s", c.Name, c.State, c.Detail)
				case c.Name == tt.check && (c.State != tt.state || !strings.Contains(c.Detail, tt.say) || c.Do == ""):
					t.Errorf("%+v, want %s with %q", c, tt.state, tt.say)
				}
			}
		})
	}
}

// Unless shortcuts are off, the report has the reason why the node or pods have none.
func TestShortcutsReason(t *testing.T) {
	for want, change := range map[string]func(*Facts){
		"none, not supported here: userspace datapath": func(f *Facts) { f.Record.Wiring.NoShortcuts = "userspace datapath" },
		"none at present: a mirror on br-int, sFlow on breth0": func(f *Facts) {
			f.Agent.ReasonsKnown, f.Agent.NoShortcuts = true, []string{"a mirror on br-int", "sFlow on breth0"}
		},
		"4 interfaces of pods may have them, 2 may not because of a bandwidth limit; 7 entries": func(f *Facts) {
			f.Agent.ReasonsKnown, f.Agent.LimitedPods, f.Programs.Shortcuts = true, 2, bpf.ShortcutCounts{Pods: 4, Entries: 7}
		},
		"1 interfaces of pods may have them; 2 entries; the agent does not give the reasons of others": func(f *Facts) {
			f.Programs.Shortcuts = bpf.ShortcutCounts{Pods: 1, Entries: 2}
		},
	} {
		f := right()
		f.Record.Wiring.Shortcuts = true
		change(&f)
		report := Judge(f)

		i := slices.IndexFunc(report.Checks, func(c Check) bool { return c.Name == "shortcuts" })
		if report.State != Right || i < 0 || report.Checks[i].Detail != want {
			t.Errorf("%s, %+v; want %q", report.State, report.Checks, want)
		}
	}

	if report := Judge(right()); slices.ContainsFunc(report.Checks, func(c Check) bool { return c.Name == "shortcuts" }) {
		t.Errorf("not asked for: %+v", report.Checks)
	}
}

// The report fits one screen; JSON has the same content.
func TestReportFitsScreen(t *testing.T) {
	f := right()
	f.Controller.Connected = false
	report := Judge(f)

	var b bytes.Buffer
	if err := report.Print(&b); err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{"node1: broken\n", "layout direct, backend ebpf", "packets: host rx 8\n", "not connected to tcp:192.0.2.9:6642", "→ start the southbound database"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}

	if lines := strings.Count(b.String(), "\n"); lines > 24 {
		t.Errorf("%d lines do not fit one screen", lines)
	}

	text, err := json.Marshal(report)
	if err != nil || !strings.Contains(string(text), `{"name":"ovn","state":"broken"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// A written record can be read; without one, Read returns ErrNone.
func TestRecord(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, ErrNone) {
		t.Errorf("no record: %v", err)
	}

	want := right().Record
	if err := Write(dir, want); err != nil {
		t.Fatal(err)
	}

	if got, err := Read(dir); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}

	if err := errors.Join(Remove(dir), Remove(dir)); err != nil {
		t.Error(err)
	}
}

// The status reads the metrics that the agent serves.
func TestAgentMetrics(t *testing.T) {
	var a Agent

	err := a.readMetrics("# TYPE ovnkube_gateway_degraded gauge\n# TYPE ovnkube_gateway_snat_ports gauge\n# TYPE ovnkube_gateway_snat_remote_ports_used_max gauge\n" +
		"# TYPE ovnkube_gateway_table_unwritten gauge\novnkube_gateway_table_unwritten{table=\"services\"} 12\novnkube_gateway_table_unwritten{table=\"host_addrs\"} 0\n" +
		"# TYPE ovnkube_gateway_shortcut_prevented gauge\n# TYPE ovnkube_gateway_shortcut_limited_pods gauge\n" +
		"ovnkube_gateway_shortcut_prevented{cause=\"hw-offload\"} 1\novnkube_gateway_shortcut_limited_pods 3\n" +
		"ovnkube_gateway_degraded{part=\"bind_gate\"} 1\novnkube_gateway_degraded{part=\"sockets\"} 0\novnkube_gateway_snat_ports 16384\novnkube_gateway_snat_remote_ports_used_max 12\n")
	if err != nil || len(a.Degraded) != 1 || a.Degraded[0] != "bind_gate" || a.PortsUsed != 12 || a.SNATPorts != 16384 || a.LimitedPods != 3 || !a.ReasonsKnown || !slices.Equal(a.NoShortcuts, []string{"hw-offload"}) ||
		!slices.Equal(a.Full, []string{"services (12 entries)"}) {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestJudge_underlay(t *testing.T) {
	var f Facts

	f.Record.Node, f.Record.Wiring = "vm1", Wiring{Mode: ModeUnderlay}
	f.Record.Paths.PinDir = "/pins"
	f.Agent = Agent{Served: true}
	f.Nested.Counters = []bpf.NestedCounter{{Direction: "rx", Reason: "in", Packets: 5}, {Direction: "tx", Reason: "unknown_device", Packets: 7}}

	report := Judge(f)

	var names []string
	for _, c := range report.Checks {
		names = append(names, c.Name)
	}

	if report.State != Right || !slices.Equal(names, []string{"agent", "programs", "cni"}) || len(report.Passed) != 1 || report.Passed["rx in"] != 5 {
		t.Errorf("state %s, checks %q, passed %v", report.State, names, report.Passed)
	}

	var out bytes.Buffer
	if err := report.Print(&out); err != nil || !strings.Contains(out.String(), "mode underlay; agent started") {
		t.Errorf("printed %q, error %v", out.String(), err)
	}

	f.Nested = Nested{Err: errors.New("gone")}
	if report := Judge(f); report.State != Broken || !strings.Contains(report.Checks[1].Detail, "gone") {
		t.Errorf("without programs: %+v", report)
	}
}

func TestCheckMode_refusesTheOtherMode(t *testing.T) {
	for _, tc := range []struct {
		mode       string // of the record; "-": there is none
		inUnderlay bool
		refused    bool
	}{
		{"-", true, false},
		{"-", false, false},
		{"", true, false}, // no agent has got to work
		{"shared", true, true},
		{"none", true, true},
		{"shared", false, false},
		{ModeUnderlay, true, false},
		{ModeUnderlay, false, true},
	} {
		dir := t.TempDir()
		if tc.mode != "-" {
			if err := Write(dir, Record{Wiring: Wiring{Mode: tc.mode}}); err != nil {
				t.Fatal(err)
			}
		}

		err := CheckMode(dir, tc.inUnderlay)
		if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "ovnkube agent --cleanup") {
			t.Errorf("record %q, in underlay %t: %v", tc.mode, tc.inUnderlay, err)
		}

		was, err := IsUnderlay(dir)
		if want := tc.mode == ModeUnderlay; was != want || errors.Is(err, ErrNone) != (tc.mode == "-" || tc.mode == "") {
			t.Errorf("record %q: in underlay mode %t, error %v", tc.mode, was, err)
		}
	}
}
