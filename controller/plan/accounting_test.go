package plan_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestHostPortsHaveBudgetPerNode checks that the host ports of a namespace's pods have a budget on
// each node: the younger of two pods on a node keeps its port, gets no load balancer and an Event.
// It is served when the older one goes. A pod on another node is not concerned.
func TestHostPortsHaveBudgetPerNode(t *testing.T) {
	pod := func(name string, node, age, first, ports int) *corev1.Pod {
		var all []corev1.ContainerPort
		for i := range ports {
			all = append(all, hostPort(int32(first+i)))
		}

		p := podAt("ns", name, node, all...)
		p.CreationTimestamp = metav1.NewTime(time.Unix(int64(age), 0))

		return p
	}
	old, young, apart := pod("old", 1, 1, 11000, 1000), pod("young", 1, 2, 20000, 1000), pod("apart", 2, 3, 11000, 1000)
	c := simCluster(t, simNode(1), simNode(2), old, young, apart)
	check := func(name string, served bool) {
		t.Helper()

		rows, err := plan.Rows(c, plan.PodKey("ns", name))
		balancers, ports := 0, 0

		for _, r := range rows {
			switch r.(type) {
			case plan.LoadBalancer:
				balancers++
			case plan.LogicalSwitchPort:
				ports++
			}
		}

		if ports != 1 || (balancers == 1) != served || (err == nil) != served {
			t.Errorf("%s: %d ports, %d load balancers, %v; want served: %t", name, ports, balancers, err, served)
		}

		const text = "not served: the Pod needs 2000 frontends, 2000 backends: older objects of the namespace leave less of its budget of 3277 frontends, 6553 backends (--service-table-share)"
		if !served && (err == nil || !strings.HasSuffix(err.Error(), text)) {
			t.Errorf("%s: %v, want %s", name, err, text)
		}
	}
	check("old", true)
	check("young", false)
	check("apart", true)
	must(t, storeOf(c, old).Delete(old))

	affected := plan.Affected(c, old, nil)
	if text := describeAll(affected); !strings.Contains(text, "pod/ns/young") || strings.Contains(text, "pod/ns/apart") {
		t.Errorf("affected: %s", text)
	}

	check("young", true)
	// A standby does not follow changes.
	must(t, storeOf(c, old).Add(old))
	check("young", true)
	c.ForgetAccounts()
	check("young", false)
}

func describeAll(keys []plan.Key) string {
	var out []string
	for _, k := range keys {
		out = append(out, k.String())
	}

	return strings.Join(out, " ")
}
