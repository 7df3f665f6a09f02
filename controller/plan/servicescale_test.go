package plan_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// TestServiceOperations checks the database operations of a service: they depend on the number of
// nodes only as far as its load balancers do. A new load balancer takes one insert, all of them one
// mutation of a group, another endpoint one update each, a deletion one delete each.
func TestServiceOperations(t *testing.T) {
	for _, kind := range []string{"ClusterIP", "NodePort"} {
		for _, nodes := range []int{3, 300} {
			t.Run(fmt.Sprintf("%s/nodes=%d", kind, nodes), func(t *testing.T) {
				n := uint64(1)
				if kind == "NodePort" && nodes == 300 {
					n = 8 // node ports at 600 addresses
				}

				want := []map[string]uint64{{"insert": n, "mutate": 1}, {"update": n}, {"update": n}, {"delete": n}}
				svc, none := simService(0, kind), &corev1.Service{}

				var got []map[string]uint64

				db := openDB(t)
				for _, step := range []struct {
					svc   *corev1.Service
					slice *discoveryv1.EndpointSlice
				}{
					{none, nil}, {svc, simSlice(0, nodes, 2)}, {svc, simSlice(0, nodes, 3)}, {svc, simSlice(0, nodes, 0)}, {none, nil},
				} {
					got = append(got, commitStep(t, db, nodes, step.svc, step.slice))
				}

				if diff := cmp.Diff(want, got[1:]); diff != "" {
					t.Errorf("operations of each step (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// commitStep plans and commits the service, and returns the number of operations of each kind.
func commitStep(t *testing.T, db *nb.DB, nodes int, svc *corev1.Service, slice *discoveryv1.EndpointSlice) map[string]uint64 {
	t.Helper()

	objects := []runtime.Object{svc}
	for i := range nodes {
		objects = append(objects, simNode(i))
	}

	if slice != nil {
		objects = append(objects, slice)
	}

	c := simCluster(t, objects...)
	rows := map[plan.Key][]plan.Row{}

	for _, k := range []plan.Key{plan.ClusterKey(), plan.ServiceKey("ns", simName(0))} { // without nodes, whose rows would lack others
		var err error
		if rows[k], err = plan.Rows(c, k); err != nil {
			t.Fatal(err)
		}
	}

	before := db.Stats().Operations
	if errs := db.Commit(t.Context(), rows); len(errs) > 0 {
		t.Fatal(errs)
	}

	used := map[string]uint64{}

	for op, n := range db.Stats().Operations {
		if n -= before[op]; n > 0 {
			used[op] = n
		}
	}

	return used
}

func openDB(t *testing.T) *nb.DB {
	t.Helper()

	endpoints, err := nb.Parse(nbtest.Start(t).Endpoint)
	if err != nil {
		t.Fatal(err)
	}

	db := nb.New(endpoints, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())

	done := make(chan error)
	go func() { done <- db.Run(ctx) }()

	t.Cleanup(func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	<-db.Connected()

	return db
}
