package plan_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestOldestGetsFront checks conflicts about frontends of random Services and pods with host ports.
// Of all objects that are served at a frontend when they are alone in the cluster, exactly the one
// that precedes the others is served there, and the errors of the others name it.
func TestOldestGetsFront(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	closed := simNode(3)
	closed.Annotations[annotation.GatewayConfig] = strings.Replace(closed.Annotations[annotation.GatewayConfig], `"node-port-enable": "true"`, `"node-port-enable": "false"`, 1)
	nodes := []runtime.Object{simNode(1), simNode(2), closed}
	contested := 0

	for round := range 400 {
		allowed := prefixes("0.0.0.0/0", "::/0")
		if round%2 > 0 { // external IPs, but not what a load balancer announces, are bounded to them
			allowed = prefixes("203.0.113.0/24", "2001:db8::/32")
		}

		cluster := func(objects ...runtime.Object) *plan.Cluster {
			c := simCluster(t, append(slices.Clone(nodes), objects...)...)
			c.Config.ExternalIPs = allowed

			return c
		}
		all, owners := []runtime.Object(nil), map[string][]services.Owner{}

		for i := range 2 + r.IntN(4) {
			o, owner := randomClaimant(r, i)
			all = append(all, o)

			alone, _ := frontsOf(t, cluster(o), owner)
			for _, f := range alone {
				owners[f] = append(owners[f], owner)
			}
		}

		c := cluster(all...)

		for f, of := range owners {
			slices.SortFunc(of, func(a, b services.Owner) int {
				if a.Precedes(b) {
					return -1
				}

				return 1
			})

			for i, owner := range of {
				got, refused := frontsOf(t, c, owner)
				switch has := slices.Contains(got, f); {
				case i == 0 && !has:
					t.Errorf("%s precedes the others at %s and is not served there: %v", owner, f, of)
				case i > 0 && has:
					t.Errorf("%s is served at %s although %s precedes it", owner, f, of[0])
				case i > 0:
					contested++

					if want := fmt.Sprintf("%s: %s has it", frontInError(f), strings.ToLower(of[0].Kind.String())+" "+of[0].Namespace+"/"+of[0].Name); !strings.Contains(refused, want) {
						t.Errorf("%s: error %q, want %q", owner, refused, want)
					}
				}
			}
		}

		if t.Failed() {
			for _, o := range all {
				t.Logf("%+v", o)
			}

			return
		}
	}

	t.Logf("%d fronts were refused", contested)

	if contested < 100 {
		t.Errorf("only %d fronts were refused", contested)
	}
}

// randomClaimant returns a Service or a pod with host ports. There are few ports and addresses, so
// that many are requested twice, some by objects of the same age.
func randomClaimant(r *rand.Rand, i int) (runtime.Object, services.Owner) {
	ports, meta := []int32{80, 3000, 3001}, metav1.ObjectMeta{Namespace: "ns", CreationTimestamp: metav1.NewTime(time.Unix(int64(r.IntN(3)), 0))}
	if r.IntN(3) == 0 {
		pod := podAt("ns", fmt.Sprint("pod", i), 1+r.IntN(3), hostPort(ports[r.IntN(3)]))
		pod.CreationTimestamp = meta.CreationTimestamp

		return pod, services.OwnerOfPod(pod)
	}

	s := simService(i, "ClusterIP")
	s.CreationTimestamp = meta.CreationTimestamp

	s.Spec.ClusterIPs = [][]string{s.Spec.ClusterIPs, s.Spec.ClusterIPs[:1], s.Spec.ClusterIPs[1:]}[r.IntN(3)]
	for p := range 1 + r.IntN(2) {
		s.Spec.Ports = append(s.Spec.Ports[:p], corev1.ServicePort{Name: fmt.Sprint(p), Port: ports[r.IntN(3)], NodePort: []int32{0, 3000, 3001}[r.IntN(3)]})
	}

	for _, ip := range []string{"172.30.0.1", "fd00:172:30::2", "172.30.0.3", "203.0.113.9", "2001:db8::9"} {
		switch r.IntN(6) {
		case 0:
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, ip)
		case 1:
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}

	return s, services.OwnerOfService(s)
}

// frontsOf returns the addresses outside of the service networks at which the owner is served, and
// what its plan refuses.
func frontsOf(t *testing.T, c *plan.Cluster, owner services.Owner) (fronts []string, refused string) {
	t.Helper()

	key := plan.ServiceKey(owner.Namespace, owner.Name)
	if owner.Kind == services.KindPod {
		key = plan.PodKey(owner.Namespace, owner.Name)
	}

	rows, err := plan.Rows(c, key)
	if u := (*plan.Unserved)(nil); errors.As(err, &u) {
		refused = strings.Join(u.Parts, "; ") // its text is only the first few
	}

	for _, row := range rows {
		lb, _ := row.(plan.LoadBalancer)
		for vip := range lb.VIPs {
			if !strings.HasPrefix(vip, "10.96.") && !strings.HasPrefix(vip, "[fd00:10:96:") {
				fronts = append(fronts, vip)
			}
		}
	}

	return fronts, refused
}

// frontInError returns a frontend as errors name it.
func frontInError(vip string) string {
	i := strings.LastIndex(vip, ":")
	return fmt.Sprintf("TCP port %s of %s", vip[i+1:], strings.Trim(vip[:i], "[]"))
}
