package gateway

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/service"
	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	model "github.com/ovn-ebpf/ovn-ebpf/service"
)

// large returns a Service at the bound of frontends: 124 ports on 65 addresses.
func large(namespace string, i int) service.Objects {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("s", i), CreationTimestamp: metav1.Unix(int64(i), 0)},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{fmt.Sprintf("10.97.%d.%d", i>>8, i&255)}},
	}
	for a := range model.MaxExternalIPs {
		svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, fmt.Sprintf("198.51.%d.%d", i, a))
	}

	for p := range model.MaxServiceFronts / (2 + model.MaxExternalIPs) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(p), Port: int32(1 + p)})
	}

	return service.Objects{Service: svc}
}

const largeFronts = 124 * model.MaxExternalIPs // at the gateway

// TestNamespaceCannotFillTables checks that 34 Services of one namespace, whose frontends are more
// than the gateway's table holds, leave room for the others: the flows of the oldest one fill the
// namespace's budget. When it goes, the next one is served.
func TestNamespaceCannotFillTables(t *testing.T) {
	r := newServingRig(t)
	r.shares = model.Shares{}
	r.restart(t)

	key := func(namespace string, i int) service.Key {
		return service.Key{Namespace: namespace, Name: fmt.Sprint("s", i)}
	}
	for i := range 34 {
		r.set(key("tenant", i), large("tenant", i))
	}

	other := numbered(0, 1)
	other.Service.Namespace, other.Service.CreationTimestamp = "other", metav1.NewTime(time.Unix(1000, 0))
	r.set(key("other", 0), other)

	check := func(what string, entries int, tenants ...int) {
		t.Helper()

		r.namespaces = newEntryBuckets() // the tenant changes more than its pace permits
		r.sync(t)

		if got := r.entries(t); got != entries {
			t.Errorf("%s: %d frontends, want %d", what, got, entries)
		}

		for table, n := range r.programs.Load().Unwritten() {
			if n != 0 {
				t.Errorf("%s: %d entries have no room in %s", what, n, table)
			}
		}

		for i := range 34 {
			want := false
			for _, n := range tenants {
				want = want || n == i
			}

			if got := r.accounts.Refused(key("tenant", i)) == nil; r.objects[key("tenant", i)].Service != nil && got != want {
				t.Errorf("%s: Service %d is served: %t", what, i, got)
			}
		}
	}
	told := map[service.Key]bool{}
	r.budgetChanged = func(k service.Key) { told[k] = true }

	check("all", largeFronts+4, 0)

	for i := 1; i < 34; i++ {
		if !told[key("tenant", i)] {
			t.Errorf("not told about Service %d", i)
		}
	}

	clear(told)

	if r.sync(t) != 0 {
		t.Error("nothing changed, and entries are written")
	}

	r.set(key("tenant", 0), service.Objects{})
	check("the oldest goes", largeFronts+4, 1)

	if len(told) != 1 || !told[key("tenant", 1)] {
		t.Errorf("told about %v, want Service 1", told)
	}

	small := large("tenant", 1)
	small.Service.Spec.Ports = small.Service.Spec.Ports[:1]
	r.set(key("tenant", 1), small)
	check("the oldest gets smaller", 64+largeFronts+4, 1, 2)
	r.set(key("tenant", 1), large("tenant", 1))
	check("and larger", largeFronts+4, 1)

	r.node.Addresses = r.node.Addresses[:1]

	check("the node changes", largeFronts+2, 1)

	for i := range 34 {
		r.set(key("tenant", i), service.Objects{})
	}

	check("all go", 2)
}

// TestFlowsOfServicesGrowWithNodes checks that the agent serves more Services when the cluster has
// more nodes, and fewer when it has fewer.
func TestFlowsOfServicesGrowWithNodes(t *testing.T) {
	r := newServingRig(t)
	r.shares = model.Shares{Namespace: 1000, FlowsPerNode: 20} // 8 nodes have 160 flows
	r.restart(t)

	const services = 20
	for i := range services {
		o := numbered(4*i+1, 0)
		o.Slices = nil
		r.set(serviceKey(4*i+1), o) // 10 flows
	}

	for _, step := range []struct{ nodes, served int }{{8, 16}, {16, services}, {8, 16}} {
		r.node.Nodes = step.nodes
		r.sync(t)

		served := 0

		for i := range services {
			if !r.OverBudget(serviceKey(4*i + 1)) {
				served++
			}
		}

		if served != step.served {
			t.Errorf("%d nodes: %d Services are served, want %d", step.nodes, served, step.served)
		}
	}
}

// TestUnitsAreThoseOfTables checks that the budgets' tables have the size of the real ones.
func TestUnitsAreThoseOfTables(t *testing.T) {
	r := newServingRig(t)

	tables, err := bpf.Tables(r.dir)
	if err != nil {
		t.Fatal(err)
	}

	units := model.TableUnits()
	for table, want := range map[string]int{
		"sock_frontends": units.Frontends, "sock_backends": units.Backends, "host_addrs": units.Addresses, "lookup_targets": units.Local,
	} {
		if got := tables[table].Capacity; got != want {
			t.Errorf("table %s has room for %d entries, the budget for %d", table, got, want)
		}
	}

	if tables["services"].Capacity < units.Frontends {
		t.Errorf("table services has room for %d entries, fewer than sock_frontends", tables["services"].Capacity)
	}
}
