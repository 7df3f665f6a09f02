package link

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

func TestSyncPodPath_repairsEachPart(t *testing.T) {
	p := PodPath{
		HostName: "pth0", Netns: newNetns(t), Name: "eth0", MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2},
		Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.2"), netip.MustParseAddr("fd09::2")},
		Gateways: map[netip.Addr]net.HardwareAddr{
			netip.MustParseAddr("10.9.0.1"): {2, 0, 0, 0, 0, 1}, netip.MustParseAddr("fd09::1"): nil,
		},
	}
	if err := SyncPodPath(p); err == nil || !strings.Contains(err.Error(), "pth0") {
		t.Errorf("without a device: %v", err)
	}

	pod := PodInterface{HostName: p.HostName, Netns: p.Netns, Name: p.Name, MAC: p.MAC, MTU: 1400, Addresses: prefixes("10.9.0.2/24")}
	if err := SyncPodInterface(pod); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = Delete(p.HostName) })

	for _, tc := range []struct{ damage, say string }{
		{"", "no permanent neighbour 10.9.0.2"}, // nothing is there yet
		{"ip route del 10.9.0.2/32", "no route to 10.9.0.2"},
		{"ip neigh del 10.9.0.2 dev pth0", "no permanent neighbour 10.9.0.2"},
		{"ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev pth0 nud stale", "no permanent neighbour 10.9.0.2"},
		{"nsenter --net=" + p.Netns + " ip neigh del 10.9.0.1 dev eth0", "device eth0: no permanent neighbour 10.9.0.1"},
	} {
		if tc.damage != "" {
			testnode.Run(t, strings.Fields(tc.damage)...)
		}

		if err := CheckPodPath(p); err == nil || !strings.Contains(err.Error(), tc.say) {
			t.Errorf("%q: check returns %v, want %q", tc.damage, err, tc.say)
		}

		for range 2 {
			if err := SyncPodPath(p); err != nil {
				t.Fatal(err)
			}
		}

		if err := CheckPodPath(p); err != nil {
			t.Errorf("%q: after the repair: %v", tc.damage, err)
		}
	}
}

func TestCheckNetns_tellsNamespacesFromFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "left")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := CheckNetns(newNetns(t)); err != nil {
		t.Error(err)
	}

	for _, path := range []string{file, file + "0"} {
		if err := CheckNetns(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestSetPromiscuous_isIdempotent(t *testing.T) {
	veth(t, "prm0")

	for _, on := range []bool{true, true, false, false} {
		if err := SetPromiscuous("prm0", on); err != nil {
			t.Fatal(err)
		}

		all, err := List()
		if err != nil {
			t.Fatal(err)
		}

		found := false

		for _, l := range all {
			if l.Name == "prm0" {
				found = true

				if l.Promiscuous != on {
					t.Errorf("promiscuous %t, want %t", l.Promiscuous, on)
				}
			}
		}

		if !found {
			t.Error("List lacks the device")
		}
	}

	if err := SetPromiscuous("nothere", true); err == nil {
		t.Error("a device that does not exist: no error")
	}
}
