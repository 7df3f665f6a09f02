package nicbridge

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ovn-ebpf/ovn-ebpf/agent/testnode"
)

// TestKept checks that a device's configuration is restored: completely for a device without
// another user, and only the selected part for one of the host, where the host's own changes stay.
func TestKept(t *testing.T) {
	for _, d := range []string{"kept0", "kept1"} {
		testnode.Run(t, "ip", "link", "add", d, "type", "veth", "peer", "name", "peer-"+d)
		t.Cleanup(func() { testnode.Run(t, "ip", "link", "del", d) })
		testnode.Run(t, "ip", "link", "set", d, "up")
	}

	sh := func(d, script string) {
		t.Helper()
		testnode.Run(t, "bash", "-c", "set -e; d="+d+"; "+script)
	}

	state := func(d string) []string {
		out := testnode.Run(t, "bash", "-c", "ip -d addr show dev "+d+"; ip route show dev "+d+" table all; ip -6 route show dev "+d+"; ip neigh show dev "+d+" nud permanent; cat /proc/sys/net/ipv4/conf/"+d+"/rp_filter")
		return slices.DeleteFunc(slices.Collect(strings.Lines(out)), func(l string) bool { return strings.Contains(l, "fe80::") })
	}
	for _, d := range []string{"kept0", "kept1"} {
		octet := d[len(d)-1:]
		sh(d, "ip addr add 10.77."+octet+".2/24 dev $d; ip addr add 169.254.169.2/29 dev $d; ip -6 addr add fd69:"+octet+"::2/125 dev $d nodad")
		sh(d, "ip neigh replace 169.254.169.4 lladdr 0a:58:a9:fe:a9:04 dev $d nud permanent")
		sh(d, "ip route add 10.96."+octet+".0/24 via 169.254.169.4 dev $d src 169.254.169.2 mtu 1400; ip route add 10.99."+octet+".0/24 via 10.77."+octet+".1")
	}

	whole, err := ReadDevice("kept0", nil)
	if err != nil {
		t.Fatal(err)
	}

	named := []netip.Prefix{netip.MustParsePrefix("10.96.1.0/24"), netip.MustParsePrefix("169.254.169.4/32"), netip.MustParsePrefix("fd69:1::2/128")}

	part, err := ReadDevice("kept1", func(p netip.Prefix) bool { return slices.Contains(named, p) })
	if err != nil {
		t.Fatal(err)
	}

	before0, before1 := state("kept0"), state("kept1")

	sh("kept0", "ip route replace 10.96.0.0/24 via 169.254.169.4 dev $d proto static; ip route del 10.99.0.0/24; ip addr del 10.77.0.2/24 dev $d; ip addr add 10.78.0.2/24 dev $d; ip route add 10.98.0.0/24 dev $d")
	sh("kept1", "ip route replace 10.96.1.0/24 via 169.254.169.4 dev $d proto 111; ip neigh replace 169.254.169.4 lladdr 0a:58:a9:fe:a9:05 dev $d nud permanent; ip -6 addr change fd69:1::2/125 dev $d preferred_lft 0")
	sh("kept1", "echo 2 > /proc/sys/net/ipv4/conf/$d/rp_filter")

	if cmp.Equal(before0, state("kept0")) || cmp.Equal(before1, state("kept1")) {
		t.Fatal("nothing is changed")
	}

	if err := whole.Restore(); err != nil {
		t.Error(err)
	}

	if err := part.Restore(); err != nil {
		t.Error(err)
	}

	slices.Sort(before0) // who comes back comes last

	after0 := state("kept0")
	slices.Sort(after0)

	if diff := cmp.Diff(before0, after0); diff != "" {
		t.Errorf("kept0 (-before +after):\n%s", diff)
	}

	if diff := cmp.Diff(before1, state("kept1")); diff != "" {
		t.Errorf("kept1 (-before +after):\n%s", diff)
	}

	sh("kept1", "ip route add 10.97.1.0/24 dev $d; ip addr add 10.79.1.2/24 dev $d")

	if err := part.Restore(); err != nil {
		t.Error(err)
	}

	if now := strings.Join(state("kept1"), ""); !strings.Contains(now, "10.97.1.0/24") || !strings.Contains(now, "10.79.1.2/24") {
		t.Errorf("the host's own changes are gone:\n%s", now)
	}
}
