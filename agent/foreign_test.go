package agent

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// Run refuses a NIC in a bridge with the host's addresses. It returns at once and changes nothing.
func TestRefusesForeignBridge(t *testing.T) {
	sw := testnode.StartSwitch(t, true)
	testnode.Run(t, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", testnode.Netns(t))
	testnode.Run(t, "ip", "link", "set", "eth0", "up")
	t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", "eth0") })
	testnode.Run(t, "ovs-vsctl", "--db="+sw.Address, "add-br", "breth0", "--", "set", "Bridge", "breth0", "datapath_type=netdev", "--", "add-port", "breth0", "eth0")
	testnode.Run(t, "ip", "addr", "add", "172.30.0.11/24", "dev", "breth0")
	testnode.Run(t, "ip", "link", "set", "breth0", "up")
	testnode.Run(t, "ip", "route", "add", "default", "via", "172.30.0.200")
	t.Cleanup(func() { testnode.Run(t, "ovs-vsctl", "--db="+sw.Address, "del-br", "breth0") }) // removes the route as well
	before := sw.Vsctl(t, "get", "Bridge", "breth0", "ports", "fail_mode", "other_config") + sw.Vsctl(t, "get", "Open_vSwitch", ".", "external_ids")

	for _, uplink := range []string{"eth0", "breth0", ""} {
		cfg := valid()
		cfg.Uplink, cfg.OVSDB, cfg.OVSRunDir, cfg.RunDir, cfg.PinDir = uplink, sw.Address, sw.Dir, sw.Dir+"/run", sw.Dir+"/bpf/node"
		cfg.Datapath, cfg.EncapIP = "netdev", netip.MustParseAddr("172.30.1.11")

		err := Run(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if !errors.Is(err, ovs.ErrForeign) || !strings.Contains(err.Error(), "OVS bridge breth0") || strings.Contains(err.Error(), "\n") {
			t.Errorf("uplink %q: got %v, want one line that names the bridge", uplink, err)
		}

		if err := Cleanup(t.Context(), cfg, slog.New(slog.DiscardHandler)); !errors.Is(err, ovs.ErrForeign) {
			t.Errorf("cleanup, uplink %q: %v", uplink, err)
		}
	}

	after := sw.Vsctl(t, "get", "Bridge", "breth0", "ports", "fail_mode", "other_config") + sw.Vsctl(t, "get", "Open_vSwitch", ".", "external_ids")
	if before != after {
		t.Errorf("OVS was changed:\n%s\n%s", before, after)
	}

	if out := testnode.Run(t, "ip", "addr", "show", "dev", "breth0"); !strings.Contains(out, "172.30.0.11/24") {
		t.Errorf("the host has lost its address:\n%s", out)
	}
}
