package gateway

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ovn-ebpf/ovn-ebpf/agent/link"
	"github.com/ovn-ebpf/ovn-ebpf/verdict"
)

// The cluster's own networks never appear on the wire. The uplink's networks and next hops do,
// wherever they lie, unless any peer on the link could cause them.
func TestNetworks(t *testing.T) {
	p := netip.MustParsePrefix
	prefixes := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, p(s))
		}

		return out
	}
	cluster := Cluster{PodCIDRs: prefixes("10.244.0.0/16", "fd00:10:244::/48"), ServiceCIDRs: prefixes("10.96.0.0/16", "fd00:10:96::/112")}
	join := prefixes("100.64.0.0/16", "fd98::/64")
	direct, bridged := Wiring{Uplink: "eth0", Bridge: "breth0"}, Wiring{Uplink: "eth0", Bridge: "breth0", Layout: verdict.Bridged}
	own := []string{"10.96.0.0/16", "100.64.0.0/16", "169.254.169.0/29", "fd00:10:96::/112", "fd69::/125", "fd98::/64"}
	dynamic := func(prefix, device string) link.Address {
		a := address(prefix, device)
		a.Dynamic = true

		return a
	}
	routable := cluster

	routable.Routable = true
	for _, tt := range []struct {
		name     string
		s        Settings
		join     []netip.Prefix
		addrs    []link.Address
		defaults []link.DefaultRoute
		internal []string
		external []string
	}{
		{
			"apart",
			Settings{Cluster: cluster, Wiring: direct},
			join,
			[]link.Address{address("192.0.2.10/24", "eth0"), address("2001:db8::10/64", "eth0")},
			[]link.DefaultRoute{{Device: "eth0", NextHop: netip.MustParseAddr("192.0.2.1")}},
			append([]string{"10.244.0.0/16", "fd00:10:244::/48"}, own...), nil,
		},
		{"routable", Settings{Cluster: routable, Wiring: direct}, join, nil, nil, own, nil},
		{
			"join is everything",
			Settings{Cluster: routable, Wiring: direct},
			prefixes("0.0.0.0/0", "::/0", "10.0.0.0/7"), nil, nil,
			[]string{"10.96.0.0/16", "169.254.169.0/29", "fd00:10:96::/112", "fd69::/125"},
			nil,
		},
		{
			"uplink in the join network",
			Settings{Cluster: routable, Wiring: direct},
			join,
			[]link.Address{address("100.64.7.10/24", "eth0"), address("100.64.8.10/24", "eth1"), address("100.64.9.1/16", "ovn-k8s-mp0")},
			nil, own,
			[]string{"100.64.7.0/24"},
		},
		{"bridged", Settings{Cluster: routable, Wiring: bridged}, join, []link.Address{address("100.64.7.10/24", "breth0"), address("169.254.169.2/29", "breth0")}, nil, own, []string{"100.64.7.0/24"}},
		{
			"next hop in the service network",
			Settings{Cluster: routable, Wiring: direct},
			join,
			[]link.Address{address("192.0.2.10/24", "eth0")},
			[]link.DefaultRoute{{Device: "eth0", NextHop: netip.MustParseAddr("10.96.255.1")}, {Device: "eth1", NextHop: netip.MustParseAddr("10.96.255.2")}},
			own,
			[]string{"10.96.255.1/32"},
		},
		{"lease in the service network", Settings{Cluster: routable, Wiring: direct}, join, []link.Address{dynamic("10.96.7.10/24", "eth0")}, nil, own, []string{"10.96.7.0/24"}},
		{
			"router advertisement",
			Settings{Cluster: cluster, Wiring: direct},
			join,
			[]link.Address{address("2001:db8::10/64", "eth0"), dynamic("fd00:10:244:1::10/64", "eth0")},
			nil, append([]string{"10.244.0.0/16", "fd00:10:244::/48"}, own...), nil,
		},
		{"the node's own from one", Settings{Cluster: routable, Wiring: direct}, join, []link.Address{dynamic("fd98::10/80", "eth0")}, nil, own, []string{"fd98::/80"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := Host{Addresses: tt.addrs, Defaults: tt.defaults}
			c := programConfig(h, nodeOf(h, tt.s), tt.s, facts{joins: tt.join})

			equal := cmp.Options{cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()}
			if diff := cmp.Diff(sortedPrefixes(prefixes(tt.internal...)), c.Internal, equal); diff != "" {
				t.Errorf("internal (-want +got):\n%s", diff)
			}

			if diff := cmp.Diff(prefixes(tt.external...), c.External, equal); diff != "" {
				t.Errorf("external (-want +got):\n%s", diff)
			}
		})
	}
}
