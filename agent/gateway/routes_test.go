package gateway

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// hasRoutes waits until "ip route" of each family shows the routes.
func (r *rig) hasRoutes(want ...string) {
	r.t.Helper()
	testnode.Eventually(r.t, "routes", func() error {
		have := testnode.Run(r.t, "ip", "-4", "route") + testnode.Run(r.t, "ip", "-6", "route")
		for _, w := range want {
			if !strings.Contains(have, w) {
				return fmt.Errorf("no %q in:\n%s", w, have)
			}
		}

		return nil
	})
}

// TestFlushedRoutesAreRestored: the routes of the uplink and the bridge are flushed, while the
// gateway runs and before it starts. The connected routes come back, and the default routes that
// were removed with them. A default route that is removed alone stays removed.
func TestFlushedRoutesAreRestored(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	testnode.Run(t, "ip", "addr", "add", "fd00:172:30::11/64", "dev", "eth0", "nodad")
	testnode.Run(t, "ip", "addr", "add", "10.99.0.1/24", "dev", "eth0", "noprefixroute")
	testnode.Run(t, "ip", "route", "add", "10.99.0.0/24", "dev", "eth0", "metric", "100", "proto", "dhcp", "src", "10.99.0.1")
	testnode.Run(t, "ip", "addr", "add", "10.98.0.1/24", "dev", "eth0", "noprefixroute") // its operator wants no route
	testnode.Run(t, "ip", "route", "add", "default", "via", "172.30.0.200", "proto", "dhcp", "metric", "50")
	testnode.Run(t, "ip", "-6", "route", "add", "default", "via", "fd00:172:30::200", "dev", "eth0")

	all := []string{
		"172.30.0.0/24 dev eth0 proto kernel scope link src 172.30.0.11", "10.99.0.0/24 dev eth0 proto dhcp scope link src 10.99.0.1 metric 100",
		"fd00:172:30::/64 dev eth0 proto kernel metric 256", "fe80::/64 dev eth0 proto kernel metric 256",
		"172.30.1.0/24 dev breth0 proto kernel scope link src 172.30.1.11",
		"default via 172.30.0.200 dev eth0 proto dhcp metric 50", "default via fd00:172:30::200 dev eth0",
	}

	r.start()
	r.hasRoutes(all...)

	flush := func() {
		t.Helper()

		for _, family := range []string{"-4", "-6"} {
			for _, device := range []string{"eth0", "breth0"} {
				testnode.Run(t, "ip", family, "route", "flush", "dev", device)
			}
		}
	}
	flush()
	r.hasRoutes(all...)
	r.hostAnswers()

	if r.repairs("routes") == 0 {
		t.Error("no repair of routes was counted")
	}

	r.stop()
	flush()
	r.start()
	r.hasRoutes(all...)
	r.hostAnswers()

	testnode.Run(t, "ip", "route", "del", "default")
	testnode.Eventually(t, "a default route that was removed alone is not missed", func() error {
		if n, _ := r.gw.View().Node(); len(n.NextHops) != 1 || n.NextHops[0] != netip.MustParseAddr("fd00:172:30::200") {
			return fmt.Errorf("next hops %v", n.NextHops)
		}

		return nil
	})

	if have := testnode.Run(t, "ip", "route"); strings.Contains(have, "default") || strings.Contains(have, "10.98.") {
		t.Errorf("unwanted routes:\n%s", have)
	}
}

// TestReplacedRoutesStay: a connected route of the uplink that its operator has replaced is not
// added.
func TestReplacedRoutesStay(t *testing.T) {
	r := newRig(t, ovs.DatapathNetdev)
	testnode.Run(t, "ip", "addr", "add", "10.99.0.1/24", "dev", "eth0")
	r.start()
	r.hasRoutes("10.99.0.0/24 dev eth0")
	testnode.Run(t, "ip", "route", "add", "10.99.0.0/24", "via", "172.30.0.200", "metric", "7")
	testnode.Run(t, "ip", "route", "del", "10.99.0.0/24", "dev", "eth0", "scope", "link")
	testnode.Run(t, "ip", "route", "del", "172.30.1.0/24", "dev", "breth0")
	r.hasRoutes("172.30.1.0/24 dev breth0") // the gateway has looked

	if have := testnode.Run(t, "ip", "route"); strings.Contains(have, "10.99.0.0/24 dev eth0 proto kernel") {
		t.Errorf("the replaced route is there again:\n%s", have)
	}

	// A network manager replaces an address and adds no route: the route gets the new one as source.
	testnode.Run(t, "ip", "addr", "add", "10.97.0.1/24", "dev", "eth0")
	r.hasRoutes("10.97.0.0/24 dev eth0 proto kernel scope link src 10.97.0.1")
	testnode.Run(t, "ip", "route", "del", "172.30.1.0/24", "dev", "breth0")
	r.hasRoutes("172.30.1.0/24 dev breth0") // the gateway has looked
	testnode.Run(t, "ip", "addr", "add", "10.97.0.2/24", "dev", "eth0", "noprefixroute")
	testnode.Run(t, "sysctl", "-qw", "net.ipv4.conf.eth0.promote_secondaries=1")
	testnode.Run(t, "ip", "addr", "del", "10.97.0.1/24", "dev", "eth0")
	r.hasRoutes("10.97.0.0/24 dev eth0 proto kernel scope link src 10.97.0.2")
	r.awaitReady()
}
