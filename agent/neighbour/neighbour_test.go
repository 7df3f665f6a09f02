package neighbour

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// A real ovs-vswitchd on the userspace datapath knows the other end of a tunnel before the first
// packet, also after a restart. The host sends ARP requests for the gateway router's next hop.
func TestTunnelsResolveBeforeFirstPacket(t *testing.T) {
	t.Cleanup(func() { _ = link.Delete("breth0") }) // outlives an ovs-vswitchd that is killed
	s := testnode.StartSwitch(t, true)
	s.Daemon(t)
	pid := testnode.Netns(t)
	far := func(argv ...string) {
		t.Helper()
		testnode.Run(t, append([]string{"nsenter", "--net=/proc/" + pid + "/ns/net", "--"}, argv...)...)
	}

	testnode.Run(t, "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "far0")
	testnode.Run(t, "ip", "link", "set", "wire0", "up")
	testnode.Run(t, "ip", "link", "set", "far0", "netns", pid)
	far("ip", "link", "set", "far0", "up", "address", "02:00:00:00:00:02")
	far("ip", "addr", "add", "172.30.1.12/24", "dev", "far0")
	far("ip", "addr", "add", "fd00:172:31::12/64", "dev", "far0", "nodad")
	s.Vsctl(t, "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev", "--", "add-port", "breth0", "wire0",
		"--", "add-br", ovs.IntegrationBridge, "--", "set", "bridge", ovs.IntegrationBridge, "datapath_type=netdev")
	addressBridge(t)

	c, err := ovs.Dial(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	hop := netip.MustParseAddr("172.30.1.1")
	far("ip", "addr", "add", hop.String()+"/24", "dev", "far0")

	r := New(Options{
		OVS: c, RunDir: s.Dir, Bridge: "breth0", Tunnels: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		NextHops:  func() NextHops { return NextHops{Device: "breth0", Hops: []netip.Addr{hop}} },
		PatchPort: func(context.Context) (uint32, error) { return 0, nil }, Changed: func() {},
	})
	ctx, cancel := context.WithCancel(t.Context())

	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()

	defer func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	peers := []string{"172.30.1.12", "fd00:172:31::12"}
	resolved := func(what string) {
		t.Helper()

		for _, p := range peers {
			testnode.Eventually(t, what+" "+p+" is resolved", func() error {
				if reply := testnode.Run(t, "ovs-appctl", "-t", s.Dir+"/vswitchd.ctl", "tnl/neigh/show"); !strings.Contains(reply, p+" ") {
					return fmt.Errorf("neighbours:\n%s", reply)
				}

				return nil
			})
		}
	}

	for i, p := range peers { // new nodes
		s.Vsctl(t, "add-port", ovs.IntegrationBridge, fmt.Sprintf("ovn-n%d-0", i), "--", "set", "interface", fmt.Sprintf("ovn-n%d-0", i), "type=geneve", "options:remote_ip="+p, "options:key=flow")
	}

	resolved("the tunnel to")
	testnode.Eventually(t, "ARP request for the next hop", func() error {
		if reply := testnode.Run(t, "ip", "neigh", "show", "to", hop.String(), "dev", "breth0"); !strings.Contains(reply, "02:00:00:00:00:02") {
			return fmt.Errorf("it is %q", reply)
		}

		return nil
	})
	s.KillVswitchd()
	s.StartVswitchd(t)
	addressBridge(t)
	resolved("after a restart, the tunnel to")

	// The datapath can learn nothing of this peer: nothing answers. The kernel knows it.
	lone := "172.30.1.13"
	for i, mac := range []string{"02:00:00:00:00:13", "02:00:00:00:01:13"} {
		testnode.Run(t, "ip", "neigh", "replace", lone, "dev", "breth0", "lladdr", mac, "nud", "permanent")
		s.Vsctl(t, "--may-exist", "add-port", ovs.IntegrationBridge, "ovn-n2-0", "--", "set", "interface", "ovn-n2-0", "type=geneve",
			"options:remote_ip="+lone, "options:key=flow", fmt.Sprintf("external_ids:change=%d", i))
		testnode.Eventually(t, lone+" is at "+mac, func() error {
			if known, err := ovs.TunnelNeighbours(t.Context(), s.Dir); err != nil || known[netip.MustParseAddr(lone)].String() != mac {
				return fmt.Errorf("neighbours: %v, %w", known, err)
			}

			return nil
		})
	}
}

// addressBridge waits until ovs-vswitchd has created the bridge's device, and gives it the node's
// addresses.
func addressBridge(t *testing.T) {
	t.Helper()
	testnode.Eventually(t, "breth0 is a device", func() error {
		_, err := net.InterfaceByName("breth0")
		return err
	})

	for _, argv := range [][]string{
		{"ip", "addr", "replace", "172.30.1.11/24", "dev", "breth0"},
		{"ip", "addr", "replace", "fd00:172:31::11/64", "dev", "breth0", "nodad"},
		{"ip", "link", "set", "breth0", "up"},
	} {
		testnode.Run(t, argv...)
	}
}
