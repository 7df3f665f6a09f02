package campaign

import (
	"testing"

	nbmodel "github.com/ovn-ebpf/ovn-ebpf/ovsdb/nb"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// TestSharedGroup checks that of the port group with the ACLs of all Services, only these may change.
func TestSharedGroup(t *testing.T) {
	group := func(name, port, acl string) string {
		return rowText(nbmodel.PortGroupTable, &nbmodel.PortGroup{UUID: "u", Name: name, Ports: []string{port}, ACLs: []string{acl}})
	}
	for _, tc := range []struct {
		what    string
		a, b    string
		changed bool
	}{
		{"ACLs of the shared group", group(clientsGroup, "p", "a"), group(clientsGroup, "p", "b"), false},
		{"ports of the shared group", group(clientsGroup, "p", "a"), group(clientsGroup, "q", "a"), true},
		{"ACLs of another group", group("other", "p", "a"), group("other", "p", "b"), true},
	} {
		if got := tc.a != tc.b; got != tc.changed {
			t.Errorf("%s: a change is noticed: %t, want %t", tc.what, got, tc.changed)
		}
	}
}

// TestLossOfTunnels checks which packets a campaign accepts as lost: on the userspace datapath,
// datagrams on paths that may cross a tunnel, and connections if the client is translated, too.
func TestLossOfTunnels(t *testing.T) {
	across, within, translated := &Path{Tunnel: true}, &Path{}, &Path{Tunnel: true, Translated: true}
	for _, tc := range []struct {
		path     *Path
		kind     string
		datapath string
		sent     int
		want     int
	}{
		{across, "udp", "netdev", 1000, 20},
		{across, "udp", "netdev", 49, 0},
		{across, "tcp", "netdev", 1000, 0},
		{across, "udp", "system", 1000, 0},
		{within, "udp", "netdev", 1000, 0},
		{translated, "tcp", "netdev", 110, 3},
		{translated, "tcp", "netdev", 0, 0},
		{translated, "tcp", "system", 110, 0},
		{translated, "held", "netdev", 1000, 0},
	} {
		p := &probe{path: tc.path, kind: tc.kind}
		if got := p.mayLose(tc.datapath, tc.sent); got != tc.want {
			t.Errorf("%+v, %s, %s: %d of %d may be lost, want %d", *tc.path, tc.kind, tc.datapath, got, tc.sent, tc.want)
		}
	}

	var tunnels []string

	g := &ground{pods: map[string]*lab.Pod{"a": {}}}
	for _, p := range g.paths() {
		if p.Tunnel {
			tunnels = append(tunnels, p.Name)
		}
	}

	if len(tunnels) != 3 {
		t.Errorf("paths that may cross a tunnel: %q", tunnels)
	}
}
