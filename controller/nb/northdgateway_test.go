package nb_test

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// TestNorthdTakesGatewayPlans checks the flows that only gateways have: load balancers of single
// routers, the path to the host that shares the router's address, preserved client addresses, and
// BFD.
func TestNorthdTakesGatewayPlans(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	ovn.AddChassis("node1")
	commitGateways(t, ovn, true, "service-host-endpoints", "pod-host-ports")

	router := map[string]string{} // logical flows by datapath

	all := strings.ReplaceAll(ovn.Flows(), "ct_lb_mark(", "ct_lb(") // newer than OVN 23.03: another action of the same effect
	if text := "ip4.dst == 172.30.0.12/32), action=(ip.ttl--; reg8[0..15] = 0; reg0 = 10.244.2.2"; !strings.Contains(all, text) {
		t.Errorf("gateway routers to another host: no logical flow contains %q", text)
	}

	for part := range strings.SplitSeq(all, "Datapath: ") {
		if _, name, ok := strings.Cut(part, "\"GR_"); ok {
			name, _, _ = strings.Cut(name, `"`)
			router["GR_"+name] += part
		}
	}

	for _, tt := range []struct{ what, router, text string }{
		{"cluster IP at a router with an endpoint's address", "GR_node1", "ip4.dst == 10.96.0.12 && tcp && tcp.dst == 80), action=(flags.force_snat_for_lb = 1; ct_lb(backends=169.254.169.2:8080,172.30.0.12:8080,192.168.9.1:8080"},
		{"cluster IP at another router", "GR_node3", "ip4.dst == 10.96.0.12 && tcp && tcp.dst == 80), action=(flags.force_snat_for_lb = 1; ct_lb(backends=172.30.0.11:8080,172.30.0.12:8080,192.168.9.1:8080"},
		{"cluster IP at a router with an endpoint's address, IPv6", "GR_node1", "backends=[fd69::2]:8080"},
		{"node port", "GR_node1", "ip4.dst == 172.30.0.11 && tcp && tcp.dst == 30080), action=(flags.force_snat_for_lb = 1; ct_lb(backends=169.254.169.2:8080"},
		{"route to the host", "GR_node1", "reg0 = 169.254.169.4"},
		{"route to the host, IPv6", "GR_node1", "xxreg0 = fd69::4"},
		{"host port", "GR_node1", "ip4.dst == 192.168.9.1 && udp && udp.dst == 53), action=(flags.skip_snat_for_lb = 1; ct_lb(backends=10.244.1.3:53"},
		{"BFD", "GR_node1", "udp.dst == 3784"},
	} {
		if !strings.Contains(router[tt.router], tt.text) {
			t.Errorf("%s: no logical flow of %s contains %q", tt.what, tt.router, tt.text)
		}
	}
	// ovn-controller has no flows for what is beyond such a port of another chassis.
	if got := ovn.PortOptions("cr-rtos-node1"); !strings.Contains(got, "always-redirect=true") {
		t.Errorf("options of the redirect port to the node's switch: %q, want always-redirect", got)
	}

	for name, flows := range router {
		if n := strings.Count(flows, "ct.new && !ct.rel && ip4 && ip4.dst == 10.96.0.12 && tcp"); n != 1 {
			t.Errorf("%s: cluster IP in %d flows, want 1", name, n)
		}
	}
}

// TestExitTraces follows packets of a node without a gateway with ovn-trace: to the outside by the
// gateways of other nodes, whose join addresses are the next hops, and to another node's host by the overlay.
func TestExitTraces(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	for _, name := range []string{"chassis-node1", "chassis-gw1", "chassis-gw2"} {
		ovn.AddChassis(name)
	}

	commitGateways(t, ovn, false, "node-no-gateway")

	for _, tt := range []struct{ what, addresses, passes string }{
		{"outside", "ip4.src == 10.244.1.9 && ip4.dst == 203.0.113.1", `[^x]reg0 = 100\.64\.0\.[34];`},
		{"outside, IPv6", "ip6.src == fd00:10:244:1::9 && ip6.dst == 2001:db8::1", `xxreg0 = fd98::[34];`},
		{"another node's host", "ip4.src == 10.244.1.9 && ip4.dst == 172.30.0.12", `output to "k8s-gw1"`},
		{"another node's host, IPv6", "ip6.src == fd00:10:244:1::9 && ip6.dst == fd00:172:30::12", `output to "k8s-gw1"`},
	} {
		trace := ovn.Trace("node1", `inport == "k8s-node1" && eth.src == 0a:58:0a:f4:01:09 && eth.dst == 0a:58:0a:f4:01:01 && ip.ttl == 64 && udp && udp.dst == 53 && `+tt.addresses)
		if !regexp.MustCompile(tt.passes).MatchString(trace) {
			t.Errorf("%s: the path has no %s:\n%s", tt.what, tt.passes, trace)
		}
	}
}

// commitGateways writes the plans of goldens' objects, which must be complete, and waits until northd
// has processed them without a warning.
func commitGateways(t *testing.T, ovn *nbtest.OVN, bfd bool, goldens ...string) {
	t.Helper()
	db := open(t, ovn.Server)

	var objects []runtime.Object
	for _, golden := range goldens {
		objects = append(objects, goldenObjects(t, golden)...)
	}

	c, err := reconcile.NewCluster(plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
		SNATPorts:    cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400, BFD: bfd,
	}, objects...)
	if err != nil {
		t.Fatal(err)
	}

	want := map[plan.Key][]plan.Row{}
	for _, k := range c.Keys() {
		if want[k], err = plan.Rows(c, k); err != nil {
			t.Fatal(err)
		}
	}

	commit(t, db, want)
	ovn.Sync()

	for _, w := range ovn.Warnings() {
		t.Errorf("northd: %s", w)
	}
}
