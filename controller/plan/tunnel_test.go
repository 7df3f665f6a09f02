package plan_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// TestTunnelACL_matchesOutside evaluates the matches of a node's ACLs for destinations inside and
// outside of the pod networks and of the allowed ranges.
func TestTunnelACL_matchesOutside(t *testing.T) {
	for _, tc := range []struct {
		name, config    string
		subnets         string // of the node
		dropped, passed []string
	}{
		{
			"IPv4", "cluster 10.244.0.0/16\njoin 100.64.0.0/16", `"10.244.1.0/24"`,
			[]string{"0.0.0.0", "10.243.255.255", "10.245.0.0", "10.96.0.1", "172.30.0.12", "255.255.255.255", "::1", "fd00:10:244::3", "fe80::1"},
			[]string{"10.244.0.0", "10.244.1.3", "10.244.255.255"},
		},
		{
			"IPv6", "cluster fd00:10:244::/48\njoin fd98::/64", `"fd00:10:244:1::/64"`,
			[]string{"10.244.1.3", "172.30.0.12", "fd00:10:243:ffff:ffff:ffff:ffff:ffff", "fd00:10:245::", "2001:db8::1", "fe80::1"},
			[]string{"fd00:10:244::", "fd00:10:244:1::3", "fd00:10:244:ffff:ffff:ffff:ffff:ffff"},
		},
		{
			"dual stack", "cluster 10.244.0.0/16\ncluster 10.250.0.0/16\ncluster fd00:10:244::/48\njoin 100.64.0.0/16\njoin fd98::/64", `"10.244.1.0/24", "fd00:10:244:1::/64"`,
			[]string{"10.245.0.0", "10.249.255.255", "10.251.0.0", "172.30.0.12", "fd00:172:30::12"},
			[]string{"10.244.1.3", "10.250.0.0", "10.250.255.255", "fd00:10:244:1::3"},
		},
		{
			"management ports", "cluster 10.244.0.0/16\ncluster fd00:10:244::/48\njoin 100.64.0.0/16\njoin fd98::/64", `"10.244.1.0/24", "fd00:10:244:1::/64"`,
			[]string{"10.244.1.2", "fd00:10:244:1::2"},
			[]string{"10.244.2.2", "fd00:10:244:2::2"}, // dropped at the switch of their node
		},
		{
			"ranges", "cluster 10.244.0.0/16\ncluster fd00:10:244::/48\njoin 100.64.0.0/16\njoin fd98::/64\ntunnels 10.245.0.0/16\ntunnels 192.0.2.0/24\ntunnels 192.0.2.128/25", `"10.244.1.0/24", "fd00:10:244:1::/64"`,
			[]string{"10.246.0.0", "192.0.1.255", "192.0.3.0", "172.30.0.12", "2001:db8::1"},
			[]string{"10.244.1.3", "10.245.0.0", "10.245.255.255", "192.0.2.0", "192.0.2.128", "192.0.2.255"},
		},
		{
			"everything but nodes", "cluster 10.244.0.0/16\njoin 100.64.0.0/16\ntunnels 0.0.0.0/0\ntunnels ::/0", `"10.244.1.0/24"`,
			[]string{"172.30.0.12", "172.30.1.12", "fd00:172:30::12", "10.244.1.2"},
			[]string{"10.244.1.3", "172.30.0.13", "192.0.2.1", "2001:db8::1"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := reconcile.NewCluster(parseConfig(t, tc.config), tunnelNode("node1", annotation.NodeSubnets, `{"default": [`+tc.subnets+`]}`),
				tunnelNode("node2", annotation.HostCIDRs, `["172.30.0.12/24", "fd00:172:30::12/64"]`, annotation.TunnelAddress, "172.30.1.12"))
			if err != nil {
				t.Fatal(err)
			}

			matches := tunnelMatches(t, c)

			for verdict, list := range map[bool][]string{true: tc.dropped, false: tc.passed} {
				for _, text := range list {
					if got := slices.ContainsFunc(matches, func(m destinations) bool { return m.has(netip.MustParseAddr(text)) }); got != verdict {
						t.Errorf("%s: dropped is %t, want %t", text, got, verdict)
					}
				}
			}
		})
	}
}

// destinations are those of an ACL's match.
type destinations []netip.Prefix

func (d destinations) has(a netip.Addr) bool {
	return slices.ContainsFunc(d, func(p netip.Prefix) bool { return p.Contains(a) })
}

// tunnelMatches returns the destinations of node1's ACLs for tunnel packets. It resolves address
// sets, which must exist.
func tunnelMatches(t *testing.T, c *plan.Cluster) (out []destinations) {
	t.Helper()

	sets := map[string][]string{}

	for _, row := range rowsOf(t, c, plan.ClusterKey()) {
		if s, ok := row.(plan.AddressSet); ok {
			sets["$"+s.Name] = s.Addresses
		}
	}

	for _, row := range rowsOf(t, c, plan.NodeKey("node1")) {
		acl, ok := row.(plan.ACL)
		if !ok || !strings.HasPrefix(acl.Rule, "tunnel") {
			continue
		}

		if acl.Direction != "from-lport" || acl.Action != "drop" || acl.Priority != 1002 || acl.Options["apply-after-lb"] != "true" {
			t.Errorf("ACL %+v", acl)
		}

		to, ok := strings.CutPrefix(acl.Match, "udp.dst == 6081 && ")
		if !ok {
			t.Fatalf("match %q", acl.Match)
		}

		var d destinations

		for term := range strings.SplitSeq(strings.Trim(to, "()"), " || ") {
			family, values, _ := strings.Cut(term, ".dst == ")
			if values == "" { // all of the family
				values = map[string]string{"ip4": "0.0.0.0/0", "ip6": "::/0"}[family]
			}

			for value := range strings.SplitSeq(strings.Trim(values, "{}"), ", ") {
				addresses, isSet := sets[value]
				if strings.HasPrefix(value, "$") && !isSet {
					t.Errorf("match %q: no set %s", acl.Match, value)
				} else if !isSet {
					addresses = []string{value}
				}

				for _, a := range addresses {
					if !strings.Contains(a, "/") {
						a = netip.PrefixFrom(netip.MustParseAddr(a), netip.MustParseAddr(a).BitLen()).String()
					}

					d = append(d, netip.MustParsePrefix(a))
				}
			}
		}

		out = append(out, d)
	}

	return out
}

func rowsOf(t *testing.T, c *plan.Cluster, key plan.Key) []plan.Row {
	t.Helper()

	rows, err := plan.Rows(c, key)
	if err != nil {
		t.Fatal(err)
	}

	return rows
}

func tunnelNode(name string, annotations ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}

	return n
}

// TestTunnelHosts_followNodes checks that the sets of hosts in the allowed ranges change with the
// nodes, and that the cluster is affected exactly then.
func TestTunnelHosts_followNodes(t *testing.T) {
	config := parseConfig(t, "cluster 10.244.0.0/16\njoin 100.64.0.0/16\ntunnels 172.30.0.0/16\ntunnels fd00:172:30::/48")
	one := tunnelNode("node1", annotation.HostCIDRs, `["172.30.0.11/24"]`)
	two := tunnelNode("node2", annotation.HostCIDRs, `["172.30.0.12/24"]`, annotation.TunnelAddress, "172.30.1.12")

	status := func(n *corev1.Node, address string) *corev1.Node {
		n = n.DeepCopy()
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: address}}

		return n
	}
	for _, tc := range []struct {
		name     string
		old, now *corev1.Node
		want     string
		affects  bool
	}{
		{"node appears", nil, two, "172.30.0.11 172.30.0.12 172.30.1.12", true},
		{"node disappears", two, nil, "172.30.0.11", true},
		{"tunnel address changes", two, tunnelNode("node2", annotation.HostCIDRs, `["172.30.0.12/24"]`, annotation.TunnelAddress, "fd00:172:30:1::12"), "172.30.0.11 172.30.0.12 fd00:172:30:1::12", true},
		{"tunnel address disappears", two, tunnelNode("node2", annotation.HostCIDRs, `["172.30.0.12/24"]`), "172.30.0.11 172.30.0.12", true},
		{"host address changes", two, tunnelNode("node2", annotation.HostCIDRs, `["172.30.0.13/24"]`, annotation.TunnelAddress, "172.30.1.12"), "172.30.0.11 172.30.0.13 172.30.1.12", true},
		{"status has an address", two, status(two, "172.30.2.12"), "172.30.0.11 172.30.0.12 172.30.1.12 172.30.2.12", true},
		{"status has an address elsewhere", two, status(two, "192.0.2.12"), "172.30.0.11 172.30.0.12 172.30.1.12", true},
		{"another annotation", two, tunnelNode("node2", annotation.HostCIDRs, `["172.30.0.12/24"]`, annotation.TunnelAddress, "172.30.1.12", "other", "x"), "172.30.0.11 172.30.0.12 172.30.1.12", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := []runtime.Object{one}

			var old, now any // without a type if they are nil
			if tc.old != nil {
				old = tc.old
			}

			if tc.now != nil {
				now, objects = tc.now, append(objects, tc.now)
			}

			c, err := reconcile.NewCluster(config, objects...)
			if err != nil {
				t.Fatal(err)
			}

			if got := slices.Contains(plan.Affected(c, old, now), plan.ClusterKey()); got != tc.affects {
				t.Errorf("the cluster is affected: %t, want %t", got, tc.affects)
			}

			var hosts []string

			for _, row := range rowsOf(t, c, plan.ClusterKey()) {
				if s, ok := row.(plan.AddressSet); ok && strings.HasPrefix(s.Name, "ovnebpf_tunnels_") {
					hosts = append(hosts, s.Addresses...)
				}
			}

			if diff := cmp.Diff(tc.want, strings.Join(hosts, " ")); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
		})
	}
}
