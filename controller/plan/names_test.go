package plan_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// collidingNames are names and prefixes of our rows that are also valid names of nodes, namespaces
// or other objects.
var collidingNames = []string{
	"join", "node-join", "ovn-cluster-router", "cluster", "switches", "routers", "others", "local", "breth0", "physnet", "hosts", "clients", "default",
	"rtos-join", "stor-join", "k8s-join", "gr-join", "ext-join", "rtoj-join", "rtoe-join", "jtor-join", "etor-join", "pod", "node", "service", "unknown", "router",
}

func namedNode(i int, name string) *corev1.Node {
	host := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), 24)

	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		annotation.ChassisID: name, annotation.NodeSubnets: fmt.Sprintf(`{"default":["10.244.%d.0/24","fd00:10:244:%x::/64"]}`, i, i),
		annotation.NodeJoin:       annotation.FormatJoin(annotation.Join{IPv4: netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, 0, byte(i + 2)}), 16)}),
		annotation.HostCIDRs:      annotation.FormatHostCIDRs([]netip.Prefix{host}),
		annotation.ManagementMACs: annotation.FormatManagementMAC(net.HardwareAddr{2, 0, 0, 0, 1, byte(i)}),
		annotation.GatewayConfig: annotation.FormatGateway(annotation.Gateway{
			Mode: annotation.GatewayModeShared, InterfaceID: "breth0_" + name, MAC: fmt.Sprintf("02:00:00:00:00:%02x", i), Addresses: []netip.Prefix{host}, NodePorts: true,
		}),
	}}}
}

// TestNamesOfRows checks that two owners never have rows of the same name, whatever nodes,
// namespaces, pods and Services are called, and that every referenced row exists exactly once.
func TestNamesOfRows(t *testing.T) {
	local := corev1.ServiceExternalTrafficPolicyLocal

	var objects []runtime.Object
	for i, name := range collidingNames {
		objects = append(objects, namedNode(i, name))
		for j, namespace := range collidingNames {
			objects = append(objects,
				&corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{annotation.PodNetworks: annotation.FormatPod(annotation.Pod{
						Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), byte(j + 3)}), 24)}, MAC: net.HardwareAddr{2, 0, 0, 0, byte(i), byte(j)},
					})}},
					Spec: corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: int32(1000 + j)}}}}},
				},
				&corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
					Spec: corev1.ServiceSpec{
						Type: corev1.ServiceTypeNodePort, ClusterIP: fmt.Sprintf("10.96.%d.%d", i, j+1), ClusterIPs: []string{fmt.Sprintf("10.96.%d.%d", i, j+1)},
						ExternalTrafficPolicy: local, Ports: []corev1.ServicePort{{Port: 80, NodePort: int32(30000 + i*50 + j)}},
					},
				},
			)
		}
	}

	c, err := reconcile.NewCluster(plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		JoinSubnets: []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")}, SNATPorts: cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
	}, objects...)
	if err != nil {
		t.Fatal(err)
	}

	owners := map[string]plan.Key{} // by table and name

	var parents []string

	refused := 0

	for _, key := range c.Keys() {
		rows, err := plan.Rows(c, key)
		if err != nil {
			if refused++; key.Kind != plan.KindPod || key.Namespace != "breth0" || len(rows) != 0 {
				t.Errorf("%s: %v", key, err)
			}

			continue
		}

		for _, r := range rows {
			named := true

			switch r := r.(type) {
			case plan.LogicalSwitchPort:
				parents = append(parents, "Logical_Switch "+r.Switch)
			case plan.LogicalRouterPort:
				parents = append(parents, "Logical_Router "+r.Router)
			case plan.LoadBalancer:
				for _, s := range r.Switches {
					parents = append(parents, "Logical_Switch "+s)
				}
			case plan.LogicalSwitch, plan.LogicalRouter, plan.LoadBalancerGroup, plan.PortGroup, plan.AddressSet:
			default:
				named = false
			}

			if !named {
				continue
			}

			name := r.Table() + " " + rowName(r)
			if other, taken := owners[name]; taken {
				t.Errorf("%s is owned by %s and by %s", name, other, key)
			}

			owners[name] = key
		}
	}

	if refused != len(collidingNames) {
		t.Errorf("%d pods have no port, want the %d that conflict with nodes' ports", refused, len(collidingNames))
	}

	slices.Sort(parents)

	for _, p := range slices.Compact(parents) {
		if _, there := owners[p]; !there {
			t.Errorf("rows refer to %s, which does not exist", p)
		}
	}

	if _, err := plan.Rows(c, plan.NodeKey("join")); err != nil {
		t.Error(err)
	}
}

// rowName returns the name in the database, without the incarnation.
func rowName(r plan.Row) string {
	if p, ok := r.(plan.LogicalSwitchPort); ok {
		return p.Name
	}

	return r.ID()
}
