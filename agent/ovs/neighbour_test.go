package ovs

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestNeighbours reads a real ovs-vswitchd's tunnels, their neighbours and the flows of neighbours.
func TestNeighbours(t *testing.T) {
	s := testnode.StartSwitch(t, true)
	s.Daemon(t)
	s.Vsctl(t, "add-br", IntegrationBridge, "--", "set", "bridge", IntegrationBridge, "datapath_type=netdev",
		"--", "add-port", IntegrationBridge, "ovn-four-0", "--", "set", "interface", "ovn-four-0", "type=geneve", "options:remote_ip=172.30.1.12", "options:key=flow",
		"--", "add-port", IntegrationBridge, "ovn-six-0", "--", "set", "interface", "ovn-six-0", "type=geneve", "options:remote_ip=fd00:172:31::12", "options:key=flow")
	c := dial(t, s)
	four, six := netip.MustParseAddr("172.30.1.12"), netip.MustParseAddr("fd00:172:31::12")

	peers, err := c.TunnelPeers(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	got := map[netip.Addr]bool{}
	for _, p := range peers {
		got[p] = true
	}

	if diff := cmp.Diff(map[netip.Addr]bool{four: true, six: true}, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}

	testnode.Eventually(t, "the bridge is made", func() error {
		_, err := TunnelNeighbours(t.Context(), s.Dir)
		return err
	})

	path, err := controlSocket(s.Dir, "ovs-vswitchd")
	if err != nil {
		t.Fatal(err)
	}

	for _, a := range []netip.Addr{four, six} {
		if known, err := TunnelNeighbours(t.Context(), s.Dir); err != nil || known[a] != nil {
			t.Errorf("%s is known before: %v, %v", a, known, err)
		}

		if _, err := unixctl(t.Context(), path, "tnl/neigh/set", IntegrationBridge, a.String(), "02:00:00:00:00:01"); err != nil {
			t.Fatal(err)
		}

		if known, err := TunnelNeighbours(t.Context(), s.Dir); err != nil || known[a] == nil {
			t.Errorf("%s is not known: %v, %v", a, known, err)
		}
	}

	for name, c := range map[string]struct {
		address netip.Addr
		match   string
		table   int // of get_arp and get_nd
	}{
		"IPv4":                {four, "reg0=0xac1e010c", 66},
		"IPv6 of OVN 23.03":   {six, "reg0=0xfd000172,reg1=0x310000,reg2=0,reg3=0x12", 66},
		"IPv6 of OVN 25.03":   {six, "reg4=0xfd000172,reg5=0x310000,reg6=0,reg7=0x12", 66},
		"IPv6, another table": {six, "reg0=0xfd000172,reg1=0x310000,reg2=0,reg3=0x12", 79},
	} {
		t.Run(name, func(t *testing.T) {
			target := "unix:" + s.Dir + "/" + IntegrationBridge + ".mgmt"
			testnode.Run(t, "ovs-ofctl", "del-flows", target)
			// A logical flow for the address, which goes on.
			testnode.Run(t, "ovs-ofctl", "add-flow", target, "table=23,priority=100,"+c.match+",metadata=0x8,actions=mod_dl_dst:02:00:00:00:00:09,resubmit(,24)")

			if known, err := RouterNeighbour(t.Context(), s.Dir, c.address); err != nil || known != nil {
				t.Errorf("a logical router knows %s before: %s, %v", c.address, known, err)
			}

			testnode.Run(t, "ovs-ofctl", "add-flow", target, fmt.Sprintf("table=%d,priority=100,%s,reg15=0x2,metadata=0x8,actions=mod_dl_dst:02:00:00:00:00:01,load:0x1->NXM_NX_REG10[6]", c.table, c.match))

			if known, err := RouterNeighbour(t.Context(), s.Dir, c.address); err != nil || known.String() != "02:00:00:00:00:01" {
				t.Errorf("no logical router knows %s at its address: %s, %v", c.address, known, err)
			}
		})
	}
}
