package plan_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
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

// TestServicesHaveFlowsPerNode checks that the total of all Services grows with the number of
// nodes: a Service that does not fit is served when another node is created, and no longer when a
// node is deleted.
func TestServicesHaveFlowsPerNode(t *testing.T) {
	small := func(name string) *corev1.Service {
		s := simService(int(name[0]), "ClusterIP")
		s.Namespace, s.Name, s.UID = "ns", name, types.UID(name)

		return s
	}

	objects := []k8sruntime.Object{small("a"), small("b")}
	for i := range 8 {
		objects = append(objects, simNode(1+i))
	}

	c := simCluster(t, objects...)

	flows := services.New(services.Config{}, small("a"), nil).Units().Flows
	c.Config.Shares = services.Shares{Namespace: 1000, FlowsPerNode: flows / 4} // room for less than two on 8 nodes

	served := func() (n int) {
		for _, name := range []string{"a", "b"} {
			if _, err := plan.Rows(c, plan.ServiceKey("ns", name)); err == nil {
				n++
			} else if want := "(--service-table-share, --service-flows-per-node)"; !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}

		return n
	}

	if got := served(); got != 1 {
		t.Fatalf("with 8 nodes, %d Services are served, want 1", got)
	}

	ninth := simNode(9)
	must(t, storeOf(c, ninth).Add(ninth))

	if text := describeAll(plan.Affected(c, nil, ninth)); !strings.Contains(text, "service/ns/b") || served() != 2 {
		t.Errorf("with 9 nodes, %d Services are served, want 2; affected: %s", served(), text)
	}

	must(t, storeOf(c, ninth).Delete(ninth))

	if text := describeAll(plan.Affected(c, ninth, nil)); !strings.Contains(text, "service/ns/b") || served() != 1 {
		t.Errorf("with 8 nodes again, %d Services are served, want 1; affected: %s", served(), text)
	}

	// The accounts that a new leader builds count the nodes, too.
	must(t, storeOf(c, ninth).Add(ninth))
	c.ForgetAccounts()

	if got := served(); got != 2 {
		t.Errorf("after the accounts are built with 9 nodes, %d Services are served, want 2", got)
	}
}
