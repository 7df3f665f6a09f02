package nb_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// TestTunnelCost counts the flows that ovn-controller makes of a node's ACLs for tunnel packets. The
// number depends on the pod networks and the allowed ranges, but not on the number of nodes, except
// for nodes in the ranges.
func TestTunnelCost(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	node := ovn.StartController(t, "node1")
	db := open(t, ovn.Server)

	commitNodes := func(nodes int, ranges []netip.Prefix, isLeftOut func(plan.Row) bool) {
		t.Helper()

		config := policyConfig()
		config.PodTunnels = ranges

		objects := []runtime.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, podOf("web", 3, corev1.ContainerPort{}),
		}
		for n := range nodes {
			objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", 1+n), Annotations: map[string]string{
				annotation.NodeSubnets: fmt.Sprintf(`{"default": ["10.244.%d.0/24", "fd00:10:244:%d::/64"]}`, 1+n, 1+n),
				annotation.ChassisID:   fmt.Sprint("node", 1+n),
				annotation.HostCIDRs:   fmt.Sprintf(`["172.30.0.%d/24", "fd00:172:30::%d/64"]`, 1+n, 1+n),
			}}})
		}

		c, err := reconcile.NewCluster(config, objects...)
		if err != nil {
			t.Fatal(err)
		}

		commitWithout(t, db, c, isLeftOut)
	}
	commitNodes(1, nil, nil)
	node.Bind("ns_web", "uid-web", "web")

	range4, range6 := netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("fd00:172:30::/48")
	for _, tc := range []struct {
		name   string
		nodes  int
		ranges []netip.Prefix
		values int // prefixes and addresses in the matches
	}{
		// A prefix of 16 and one of 48 bits leave as many prefixes, and each family has a management port.
		{"one node", 1, nil, 16 + 48 + 2},
		{"100 nodes", plan.SupportedNodes, nil, 16 + 48 + 2},
		{"100 nodes, none in the range", plan.SupportedNodes, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, 16 + 22 + 48 + 2},
		{"one node in the ranges", 1, []netip.Prefix{range4, range6}, 0},
		{"100 nodes in the ranges", plan.SupportedNodes, []netip.Prefix{range4, range6}, 0},
	} {
		commitNodes(tc.nodes, tc.ranges, isTunnelACL)

		base := node.Flows()

		commitNodes(tc.nodes, tc.ranges, nil)

		got := node.Flows() - base

		t.Logf("%s: %d flows", tc.name, got)
		// northd makes two logical flows of an ACL that drops: for new and for established connections.
		if want := 2 * tc.values; want > 0 && got != want {
			t.Errorf("%s: %d flows, want %d", tc.name, got, want)
		}
	}
}

func isTunnelACL(r plan.Row) bool {
	acl, ok := r.(plan.ACL)
	return ok && strings.HasPrefix(acl.Rule, "tunnel")
}

// TestTunnelTraces checks the fate of a pod's packets with ovn-trace.
func TestTunnelTraces(t *testing.T) {
	ovn := nbtest.StartOVN(t)
	ovn.AddChassis("node1")
	db := open(t, ovn.Server)
	config := policyConfig()
	config.PodTunnels = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	objects := []runtime.Object{
		gatewayNode(1), gatewayNode(2), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}, podOf("web", 3, corev1.ContainerPort{}),
	}
	objects[1].(*corev1.Node).Annotations[annotation.TunnelAddress] = "192.0.2.12"

	c, err := reconcile.NewCluster(config, objects...)
	if err != nil {
		t.Fatal(err)
	}

	commitAll(t, db, c)
	ovn.Sync()

	for _, w := range ovn.Warnings() {
		t.Errorf("northd: %s", w)
	}

	for _, tc := range []struct {
		name, packet string
		drops        bool
	}{
		{"to another node", "ip4.dst == 172.30.0.12 && udp.dst == 6081", true},
		{"to another node, IPv6", "ip6.dst == fd00:172:30::12 && udp.dst == 6081", true},
		{"to another port of the node", "ip4.dst == 172.30.0.12 && udp.dst == 6082", false},
		{"to its own node", "ip4.dst == 172.30.0.11 && udp.dst == 6081", true},
		{"to a tunnel address in a range", "ip4.dst == 192.0.2.12 && udp.dst == 6081", true},
		{"to another address in the range", "ip4.dst == 192.0.2.13 && udp.dst == 6081", false},
		{"to the own management port", "ip4.dst == 10.244.1.2 && udp.dst == 6081", true},
		{"to a pod", "ip4.dst == 10.244.1.4 && udp.dst == 6081", false},
		{"to a pod, IPv6", "ip6.dst == fd00:10:244:2::4 && udp.dst == 6081", false},
	} {
		family, address := "ip4", "ip4.src == 10.244.1.3 && ip.ttl == 64"
		if strings.Contains(tc.packet, "ip6") {
			family, address = "ip6", "ip6.src == fd00:10:244:1::3 && ip.ttl == 64"
		}

		out := ovn.Trace("node1", `inport == "ns_web" && eth.src == 0a:58:0a:f4:01:03 && eth.dst == 0a:58:0a:f4:01:01 && `+
			family+" && "+address+" && "+tc.packet)
		// An ACL that drops ends the trace in the switch of the node.
		if drops := strings.Contains(out, "ls_in_acl_after_lb") && !strings.Contains(out, "ls_in_l2_lkup"); drops != tc.drops {
			t.Errorf("%s: dropped by an ACL: %t, want %t\n%s", tc.name, drops, tc.drops, out)
		}
	}
}
