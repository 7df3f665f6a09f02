package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestAffectedCoversConflicts: services and pods that want the same addresses and ports come,
// change and go at random. Planning anew only what Affected names is the same as
// planning everything, after each change: who loses gets what it wants as soon as
// that is free, and the neighbours go on.
func TestAffectedCoversConflicts(t *testing.T) { affectedCovers(t, services.Shares{}) }

// TestAffectedCoversBudgets is the same with budgets that let objects in and out.
func TestAffectedCoversBudgets(t *testing.T) { affectedCovers(t, services.Shares{Namespace: 34}) }

func affectedCovers(t *testing.T, shares services.Shares) {
	seed := randomtest.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	cfg := conflictConfig()
	cfg.Shares = shares

	c, err := reconcile.NewCluster(cfg, conflictNode(1, "172.30.0.11/24"), conflictNode(2, "172.30.0.12/24"))
	if err != nil {
		t.Fatal(err)
	}

	planned, clashes, refused := map[plan.Key]string{}, 0, 0
	replan := func(keys []plan.Key) {
		for _, k := range keys {
			rows, err := plan.Rows(c, k)

			planned[k] = plan.Format(rows)
			if err != nil {
				planned[k] += err.Error()
			}
		}
	}

	for step := range 1000 {
		old, now, store := conflictChange(random, c)
		switch {
		case now != nil:
			err = store.Update(now)
		case old != nil:
			err = store.Delete(old)
		default:
			continue
		}

		if err != nil {
			t.Fatal(err)
		}

		replan(plan.Affected(c, old, now))

		for _, k := range c.Keys() {
			rows, err := plan.Rows(c, k)
			want := plan.Format(rows)

			if err != nil {
				clashes++

				if strings.Contains(err.Error(), "--namespace-frontends") {
					refused++
				}

				want += err.Error()
			}

			if k.Kind != plan.KindCluster && k.Kind != plan.KindNode && planned[k] != want {
				t.Fatalf("step %d: %s was not planned anew (-now +as it was left):\n%s", step, k, cmp.Diff(want, planned[k]))
			}
		}
	}

	if clashes == 0 {
		t.Error("nothing clashed: the test tests nothing")
	}

	if (refused > 0) != (shares != services.Shares{}) {
		t.Errorf("%d objects were beyond the budget", refused)
	}
}

func conflictConfig() plan.Config {
	return plan.Config{
		Hosts:        annotation.TrustAll(),
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")},
		ExternalIPs:  []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")},
		SNATPorts:    cluster.PortRange{First: 49152, Last: 65535}, MTU: 1400,
	}
}

func conflictNode(i int, address string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", i), Annotations: map[string]string{
		"k8s.ovn.org/node-subnets":                    fmt.Sprintf(`{"default": ["10.244.%d.0/24"]}`, i),
		"k8s.ovn.org/node-gateway-router-lrp-ifaddrs": fmt.Sprintf(`{"default": {"ipv4": "100.64.0.%d/16"}}`, i+1),
		"k8s.ovn.org/l3-gateway-config":               fmt.Sprintf(`{"default": {"mode": "shared", "interface-id": "b_node%d", "mac-address": "02:00:00:00:00:01", "ip-addresses": [%q], "node-port-enable": "true"}}`, i, address),
		"k8s.ovn.org/node-chassis-id":                 fmt.Sprint("node", i),
		"k8s.ovn.org/host-cidrs":                      fmt.Sprintf(`[%q]`, address),
	}}}
}

// conflictChange is one that comes, changes or goes: of six services, four pods, or
// the addresses of a node. old is nil for one that comes, now for one that goes.
func conflictChange(r *rand.Rand, c *plan.Cluster) (old, now runtime.Object, store cache.Indexer) {
	ports := []int32{80, 30080, 30081}

	age := metav1.NewTime(time.Unix(int64(r.IntN(3)), 0))
	switch n := r.IntN(11); {
	case n < 6:
		name := fmt.Sprint("s", n)

		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: age},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: []string{fmt.Sprint("10.96.0.", n+1)},
				Ports: []corev1.ServicePort{{Port: ports[r.IntN(3)], NodePort: []int32{0, 30080, 30081}[r.IntN(3)]}},
			},
		}
		for _, a := range []string{"203.0.113.1", "203.0.113.2", "172.30.0.11", "172.30.0.12", "10.96.0.9"} {
			if r.IntN(3) == 0 {
				svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, a)
			}
		}

		return present(c.Service("ns", name)), orGone(r, svc), c.Stores[plan.KindService].(cache.Indexer)
	case n < 10:
		name := fmt.Sprint("p", n)
		address := fmt.Sprintf("10.244.1.%d", n)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: age, Annotations: map[string]string{
				"k8s.ovn.org/pod-networks": fmt.Sprintf(`{"default": {"ip_addresses": ["%s/24"], "mac_address": "0a:58:0a:f4:01:03"}}`, address),
			}},
			Spec: corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: ports[r.IntN(3)], ContainerPort: 8080}}}}},
		}
		// A pod's ports and age do not change while it is there.
		if old := c.Pod("ns", name); old != nil {
			return old, nil, c.Stores[plan.KindPod].(cache.Indexer)
		}

		return nil, pod, c.Stores[plan.KindPod].(cache.Indexer)
	}

	i := 1 + r.IntN(2)

	return c.Node(fmt.Sprint("node", i)), conflictNode(i, fmt.Sprintf("172.30.0.%d/24", 11+r.IntN(3))), c.Stores[plan.KindNode].(cache.Indexer)
}

func orGone(r *rand.Rand, svc *corev1.Service) runtime.Object {
	if r.IntN(3) == 0 {
		return nil
	}

	return svc
}

func present(svc *corev1.Service) runtime.Object {
	if svc == nil {
		return nil
	}

	return svc
}
