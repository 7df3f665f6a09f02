package neighbour

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestNextHopsFollowTheKernel: OVN has an address of the next hop that differs from the kernel's,
// or none. The Resolver sends the kernel's to OVN's port, again when it changes and when OVN
// forgets it. The test stands in for ovn-controller.
func TestNextHopsFollowTheKernel(t *testing.T) {
	s := testnode.StartSwitch(t, true)
	s.Daemon(t)
	s.Vsctl(t, "add-br", "breth0", "--", "set", "bridge", "breth0", "datapath_type=netdev",
		"--", "add-br", ovs.IntegrationBridge, "--", "set", "bridge", ovs.IntegrationBridge, "datapath_type=netdev",
		"--", "add-port", "breth0", "patch-b", "--", "set", "interface", "patch-b", "type=patch", "options:peer=patch-i", "ofport_request=5",
		"--", "add-port", ovs.IntegrationBridge, "patch-i", "--", "set", "interface", "patch-i", "type=patch", "options:peer=patch-b")
	addressBridge(t)

	c, err := ovs.Dial(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	hops := []netip.Addr{netip.MustParseAddr("172.30.1.1"), netip.MustParseAddr("fd00:172:31::1")}
	integration := "unix:" + s.Dir + "/" + ovs.IntegrationBridge + ".mgmt"
	ofctl := func(argv ...string) string {
		t.Helper()
		return testnode.Run(t, append([]string{"ovs-ofctl"}, argv...)...)
	}
	own := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	standIns := map[netip.Addr]netip.Addr{hops[1]: netip.MustParseAddr("169.254.0.1")}
	r := New(Options{
		OVS: c, RunDir: s.Dir, Bridge: "breth0", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Changed: func() {},
		NextHops: func() NextHops {
			return NextHops{Device: "breth0", Hops: hops, StandIns: standIns, MAC: own, Addrs: []netip.Addr{netip.MustParseAddr("172.30.1.11"), netip.MustParseAddr("fd00:172:31::11")}}
		},
		PatchPort: func(context.Context) (uint32, error) { return 5, nil },
	})
	ended := make(chan error, 1)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- r.Run(ctx) }()

	defer func() {
		cancel()

		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	kernel := func(mac string) {
		t.Helper()

		for _, hop := range hops {
			testnode.Run(t, "ip", "neigh", "replace", hop.String(), "dev", "breth0", "lladdr", mac, "nud", "permanent")
		}
	}
	learned := func(what, mac string) { // the flow counts answers of this address
		t.Helper()
		ofctl("del-flows", integration)
		ofctl("add-flow", integration, "priority=10,arp,arp_op=2,arp_sha="+mac+",arp_spa=172.30.1.1,arp_tpa=172.30.1.11,dl_dst="+own.String()+",actions=drop")
		ofctl("add-flow", integration, "priority=20,arp,arp_spa=169.254.0.1,actions=drop")
		ofctl("add-flow", integration, "priority=10,icmp6,icmp_type=136,nd_target=fd00:172:31::1,nd_tll="+mac+",dl_dst="+own.String()+",actions=drop")

		for _, flow := range []string{"arp,arp_spa=172.30.1.1", "icmp6"} {
			testnode.Eventually(t, what+": answer for "+flow, func() error {
				if flows := ofctl("dump-flows", integration, flow); strings.Contains(flows, "n_packets=0,") {
					return fmt.Errorf("none of %s:\n%s", mac, flows)
				}

				return nil
			})
		}

		ofctl("add-flow", integration, "table=66,priority=100,reg0=0xac1e0101,reg15=0x2,metadata=0x8,actions=mod_dl_dst:"+mac)
		ofctl("add-flow", integration, "table=66,priority=100,reg0=0xfd000172,reg1=0x310000,reg2=0,reg3=0x1,reg15=0x2,metadata=0x8,actions=mod_dl_dst:"+mac)
	}

	const first, second = "02:00:00:00:00:02", "02:00:00:00:00:03"
	kernel(first)
	learned("at first", first)
	kernel(second)
	learned("another address", second)

	if got := r.MAC(hops[1]); got.String() != second {
		t.Errorf("link-layer address of the next hop with a stand-in: %s", got)
	}

	if flows := ofctl("dump-flows", integration, "arp,arp_spa=169.254.0.1"); !strings.Contains(flows, "n_packets=0,") {
		t.Errorf("the router got an answer for the stand-in:\n%s", flows)
	}

	if fault := r.Fault(); fault != "" {
		t.Errorf("fault %q right after the change", fault)
	}
}
