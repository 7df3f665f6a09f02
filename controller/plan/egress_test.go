package plan_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
)

// TestEgressGateways_atMostEight checks the choice among many gateways. Each node without a gateway
// uses eight of them, every gateway is used, and the removal of one gateway changes only the nodes
// that used it.
func TestEgressGateways_atMostEight(t *testing.T) {
	const gateways, others = 20, 60

	objects := func(without string) []runtime.Object {
		var out []runtime.Object

		for i := 1; i <= gateways+others; i++ {
			name, gateway := fmt.Sprintf("n%d", i), annotation.Gateway{Mode: annotation.GatewayModeDisabled}
			if i <= gateways {
				name = fmt.Sprintf("gw%d", i)
				gateway = annotation.Gateway{
					Mode: annotation.GatewayModeShared, InterfaceID: "breth0_" + name, MAC: "02:00:00:00:00:01",
					Addresses: prefixes(fmt.Sprintf("172.30.0.%d/24", i)),
				}
			}

			if name == without {
				continue
			}

			out = append(out, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
				annotation.ChassisID:     name,
				annotation.NodeSubnets:   annotation.FormatNodeSubnets(prefixes(fmt.Sprintf("10.244.%d.0/24", i))),
				annotation.NodeJoin:      annotation.FormatJoin(annotation.Join{IPv4: prefixes(fmt.Sprintf("100.64.0.%d/16", i+1))[0]}),
				annotation.GatewayConfig: annotation.FormatGateway(gateway),
			}}})
		}

		return out
	}
	all, one := egressNextHops(t, objects("")), egressNextHops(t, objects("gw7"))
	used := map[string]int{}

	for name, exits := range all {
		if len(exits) != 8 || len(one[name]) != 8 {
			t.Errorf("%s leaves by %v, without gw7 by %v, want 8 each", name, exits, one[name])
		}

		for _, hop := range exits {
			used[hop]++
		}

		if !slices.Contains(exits, "100.64.0.8") && !slices.Equal(exits, one[name]) {
			t.Errorf("%s did not use gw7: with gw7 it leaves by %v, without gw7 by %v", name, exits, one[name])
		}
	}

	if len(all) != others || len(used) != gateways {
		t.Errorf("%d nodes leave by %d gateways, want %d by %d", len(all), len(used), others, gateways)
	}

	t.Log("nodes by gateway:", slices.Sorted(maps.Values(used)))
}

// egressNextHops returns the default routes of each node without a gateway, sorted.
func egressNextHops(t *testing.T, objects []runtime.Object) map[string][]string {
	t.Helper()

	c, err := reconcile.NewCluster(plan.Config{Hosts: annotation.TrustAll(), ClusterCIDRs: prefixes("10.244.0.0/16"), JoinSubnets: prefixes("100.64.0.0/16")}, objects...)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string][]string{}

	for _, k := range c.Keys() {
		rows, err := plan.Rows(c, k)
		if err != nil {
			t.Fatal(err)
		}

		for _, r := range rows {
			if route, ok := r.(plan.StaticRoute); ok && route.Prefix == "0.0.0.0/0" {
				out[k.Name] = append(out[k.Name], route.NextHop)
			}
		}

		slices.Sort(out[k.Name])
	}

	return out
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}

	return out
}
