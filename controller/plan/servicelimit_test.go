package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestServiceText checks the bound on the bytes of a Service's load balancers. Every front counts
// once for switches and once for routers, with its backends, and those of nodes that differ count in
// addition, once for neighbours in the same zone. A Service that fits exactly is served whole. With
// one byte less, a port is refused.
func TestServiceText(t *testing.T) {
	const vip = 48

	hinted := simSlice(1, 8, 8)

	hinted.Endpoints = []discoveryv1.Endpoint{hinted.Endpoints[0], hinted.Endpoints[1]}
	for i := range hinted.Endpoints {
		zone := []string{"zone0", "zone1"}[i]
		hinted.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}

	const (
		first, second = "10.128.1.10:8080", "10.128.2.11:8080"
		both          = len(first + "," + second)
	)

	two := simService(1, "NodePort")
	two.Spec.Ports = append(two.Spec.Ports, corev1.ServicePort{Name: "second", Port: 81, NodePort: 30999})
	zones := []runtime.Object{simNode(0), simNode(3), simNode(4), simNode(7)} // zones 0, 0, 1, 1
	one := simService(1, "ClusterIP")
	one.Spec.ClusterIPs = one.Spec.ClusterIPs[:1]
	local := simService(1, "Local")

	local.Spec.ExternalIPs = []string{"203.0.113.9"}
	for _, tc := range []struct {
		name    string
		objects []runtime.Object
		used    int
		refused string // with one byte less
	}{
		{"no endpoints", []runtime.Object{simService(1, "ClusterIP")}, 2 * 2 * vip, "port 80"},
		{"cluster IP", []runtime.Object{simService(1, "ClusterIP"), simSlice(1, 8, 2)}, 2*2*vip + 2*both, "port 80"},
		{"node port", []runtime.Object{simService(1, "NodePort"), simSlice(1, 8, 2), simNode(1), simNode(2)}, 3 * (2*2*vip + 2*both), "port 30001"},
		{"zones", append(zones, one, hinted), 2*vip + 2*both + 2*(vip+len(first)+vip+len(second)), "port 80"},
		{"local", []runtime.Object{local, simSlice(1, 8, 2), simNode(1), simNode(2)}, (2*2*vip + 2*both) + (2*vip + both + vip + len(first) + vip + len(second)) + 2*2*2*vip + 2*len(first) + 2*len(second), "port 30001"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, key := simCluster(t, tc.objects...), plan.ServiceKey("ns", "service1")

			const much = 1 << 20

			all, left, err := plan.BalancersWithin(c, key, much)
			if used := much - left; used != tc.used || err != nil {
				t.Fatalf("%d bytes, want %d; error %v:\n%s", used, tc.used, err, plan.Format(all))
			}

			exact, left, err := plan.BalancersWithin(c, key, tc.used)
			if diff := cmp.Diff(plan.Format(all), plan.Format(exact)); diff != "" || left != 0 || err != nil {
				t.Errorf("exactly enough: %d bytes left, error %v, rows (-all +got):\n%s", left, err, diff)
			}

			_, _, err = plan.BalancersWithin(c, key, tc.used-1)
			if err == nil || err.Error() != "not served: "+tc.refused+": the service's load balancers would be longer than 16777216 bytes" {
				t.Errorf("one byte less: %v", err)
			}
		})
	}

	t.Run("nothing left for the second port", func(t *testing.T) {
		c, key := simCluster(t, two, simNode(1)), plan.ServiceKey("ns", "service1")

		const one = (2 + 2) * 2 * vip
		if _, _, err := plan.BalancersWithin(c, key, one); err == nil || !strings.Contains(err.Error(), "port 30999") || strings.Contains(err.Error(), "port 80:") {
			t.Errorf("error %v", err)
		}

		if _, _, err := plan.BalancersWithin(c, key, one-1); err == nil || strings.Contains(err.Error(), "port 30999") || !strings.Contains(err.Error(), "port 81") {
			t.Errorf("one byte less: error %v", err)
		}
	})
}
