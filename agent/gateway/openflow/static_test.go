package openflow_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/gateway/openflow"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
	"github.com/ovn-ebpf/ovn-ebpf/verdict/corpus"
)

var update = flag.Bool("update", false, "write testdata")

// The flows beside programs: marked packets go to OVN, unmarked ones pass between the uplink and
// the host.
func TestStatic(t *testing.T) {
	r := newRig(t)
	v4 := corpus.V4
	in, out := v4.In(corpus.UDP(53, 50000)), v4.Out(corpus.UDP(50000, 53))

	const ovn = openflow.Mark

	tagged := func(b []byte) []byte { return corpus.Tag(100, b) }
	for _, tt := range []struct {
		name   string
		layout verdict.Layout
		vlan   uint16
		port   string
		mark   uint32
		frame  []byte
		want   string // the datapath's actions
	}{
		{"unmarked", verdict.Bridged, 0, "uplink", 0, in, "breth0"},
		{"marked", verdict.Bridged, 0, "uplink", ovn, in, "set(skb_mark(0)),patch"},
		{"another's mark", verdict.Bridged, 0, "uplink", 0x4000, in, "breth0"},
		{"host", verdict.Bridged, 0, "LOCAL", 0, out, "set(skb_mark(0x686f)),uplink"},
		{"host to OVN", verdict.Bridged, 0, "LOCAL", ovn, out, "set(skb_mark(0)),patch"},
		{"from OVN", verdict.Bridged, 0, "patch", 0, out, "uplink"},
		{"VLAN, unmarked", verdict.Bridged, 100, "uplink", 0, tagged(in), "pop_vlan,breth0"},
		{"VLAN, another", verdict.Bridged, 100, "uplink", 0, corpus.Tag(101, in), "breth0"},
		{"VLAN, marked", verdict.Bridged, 100, "uplink", ovn, tagged(in), "set(skb_mark(0)),patch"},
		{"VLAN, host", verdict.Bridged, 100, "LOCAL", 0, out, "set(skb_mark(0x686f)),push_vlan(vid=100,pcp=0),uplink"},
		{"VLAN, host's own", verdict.Bridged, 100, "LOCAL", 0, corpus.Tag(7, out), "set(skb_mark(0x686f)),uplink"},
		{"VLAN, host to OVN", verdict.Bridged, 100, "LOCAL", ovn, out, "set(skb_mark(0)),push_vlan(vid=100,pcp=0),patch"},
		{"VLAN, from OVN", verdict.Bridged, 100, "patch", 0, tagged(out), "uplink"},
		{"in", verdict.Dedicated, 0, "uplink", 0, in, "patch"},
		{"out", verdict.Dedicated, 0, "patch", 0, out, "uplink"},
		{"host", verdict.Dedicated, 0, "LOCAL", 0, out, "drop"},
		{"from OVN", verdict.Direct, 0, "patch", 0, out, "breth0"},
		{"from the wire", verdict.Direct, 0, "LOCAL", 0, in, "uplink,patch"}, // the rig's bridge has an uplink
	} {
		port := map[string]string{"uplink": fmt.Sprint(r.ports.Uplink), "patch": fmt.Sprint(r.ports.Patch), "LOCAL": "LOCAL"}[tt.port]
		t.Run(fmt.Sprint(tt.layout, " ", tt.name), func(t *testing.T) {
			flows := openflow.Static(openflow.StaticInput{Layout: tt.layout, Ports: r.ports, VLAN: tt.vlan})
			if _, err := ovs.SyncBundle(t.Context(), r.Dir, bridge, flows); err != nil {
				t.Fatal(err)
			}

			trace, err := r.ctl.Trace(t.Context(), ovs.TraceInput{Bridge: bridge, Port: port, Mark: tt.mark, Frame: tt.frame})
			if err != nil {
				t.Fatal(err)
			}
			// OVS orders independent actions itself.
			got, want := strings.Split(trace.Passes[0], ","), strings.Split(tt.want, ",")
			slices.Sort(got)
			slices.Sort(want)

			if !slices.Equal(got, want) || len(trace.Passes) > 1 {
				t.Errorf("%s, want %s\n%s", trace.Passes, tt.want, trace.Text)
			}
		})
	}
}

// On the userspace datapath its own tunnels end on LOCAL.
func TestStaticEncap(t *testing.T) {
	r := newRig(t)

	for _, encap := range []netip.Addr{corpus.V4.Encap, corpus.V6.Encap} {
		flows := openflow.Static(openflow.StaticInput{Layout: verdict.Direct, EncapIP: encap, Hairpin: hairpin(plainNode(0))})
		for _, want := range []int{1, 0} {
			if got, err := ovs.SyncBundle(t.Context(), r.Dir, bridge, flows); err != nil || min(got, 1) != want {
				t.Fatalf("%s: %d messages, error %v", encap, got, err)
			}
		}
	}
}

// The flows of a small node, for people to read.
func TestGolden(t *testing.T) {
	n := plainNode(1)
	n.Config.Node6, n.Config.BFD, n.Config.InSync = netip.Addr{}, true, false

	n.Config.RoutablePods = []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24")}
	for a := range n.Addrs {
		if a.Is6() {
			delete(n.Addrs, a)
		}
	}

	for k := range n.Services {
		if k.Addr.Is6() {
			delete(n.Services, k)
		}
	}

	n.Addrs[corpus.V4.Egress] = verdict.AddrOVN
	local := netip.AddrPortFrom(corpus.V4.Node, 50443)
	n.Sockets = []verdict.Socket{
		{Proto: corpus.ProtoTCP, Local: local},
		{Proto: corpus.ProtoUDP, Local: netip.AddrPortFrom(corpus.V4.Node, 50001), Remote: netip.AddrPortFrom(corpus.V4.Remote, 53)},
	}
	ports := openflow.Ports{Uplink: 1, Patch: 2}
	in := (&rig{ports: ports}).input(n)
	in.Hairpin = hairpin(n)
	golden(t, "openflow", slices.DeleteFunc(openflow.Flows(in), func(f string) bool { return strings.Contains(f, "arp_spa=") }))

	for layout, name := range map[verdict.Layout]string{verdict.Direct: "direct", verdict.Bridged: "bridged", verdict.Dedicated: "dedicated"} {
		golden(t, name, openflow.Static(openflow.StaticInput{Layout: layout, Ports: ports, Hairpin: hairpin(n)}))
	}
}

func golden(t *testing.T, name string, flows []string) {
	t.Helper()

	path, got := "testdata/"+name+".txt", strings.Join(flows, "\n")+"\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-update writes it):\n%s", path, diff)
	}
}

// TestJoining: a bridge that the uplink joins passes OVN's packets as before. Packets of the new port
// reach the host on the kernel datapath, and nothing on the userspace datapath.
func TestJoining(t *testing.T) {
	ovn := []string{"priority=100,in_port=7 actions=LOCAL", "priority=100,in_port=LOCAL actions=output:7"}
	for _, test := range []struct {
		patch     uint32
		userspace bool
		want      []string
	}{
		{7, false, append([]string{"priority=1 actions=LOCAL", "priority=2,in_port=LOCAL actions=drop"}, ovn...)},
		{7, true, append([]string{"priority=1 actions=drop", "priority=2,in_port=LOCAL actions=drop"}, ovn...)},
		{0, false, []string{"priority=1 actions=LOCAL", "priority=2,in_port=LOCAL actions=drop"}},
	} {
		slices.Sort(test.want)

		if got := openflow.Joining(test.patch, test.userspace); !slices.Equal(got, test.want) {
			t.Errorf("patch %d, userspace %v: %q, want %q", test.patch, test.userspace, got, test.want)
		}
	}
}
