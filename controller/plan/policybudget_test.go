package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// costly returns a policy of that age whose egress costs a number of flows, which must be even.
func costly(namespace, name string, created int64, egress int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0), UID: types.UID(name)}}

	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	if egress >= 4 {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{Ports: numbered(egress / 4)})
	}

	if egress%4 == 2 {
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: blocks(1)})
	}

	return p
}

// allowing returns the sides of a policy that allow something, and the text of its Event.
func allowing(t *testing.T, c *plan.Cluster, namespace, name string) (sides, event string) {
	t.Helper()

	rows, err := plan.Rows(c, plan.PolicyKey(namespace, name))
	if err != nil {
		event = err.Error()
	}

	for _, side := range []string{"to-lport", "from-lport"} {
		for _, r := range rows {
			if acl, ok := r.(plan.ACL); ok && acl.Direction == side {
				sides += side + " "
				break
			}
		}
	}

	return strings.TrimSpace(sides), event
}

// TestManyPortRangesAreClosed checks a policy whose ports are within all other bounds and cost
// hundreds of thousands of flows: it allows nothing in that direction, its pods are isolated, and
// the Event has the cost and the bound. The other direction stands.
func TestManyPortRangesAreClosed(t *testing.T) {
	p := policyWith()[0].(*networkingv1.NetworkPolicy)
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: numbered(1)}}
	p.Spec.Egress = nil

	for rule := range 38 {
		var ports []networkingv1.NetworkPolicyPort

		for i := range 900 {
			first := intstr.FromInt32(int32(1 + 70*i + rule))
			last := first.IntVal + 33
			ports = append(ports, networkingv1.NetworkPolicyPort{Port: &first, EndPort: &last})
		}

		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{Ports: ports})
	}

	allow, drop, event := planPolicy(t, p)
	if len(allow) != 1 || !strings.Contains(allow[0], "outport") || drop != 2 {
		t.Errorf("%d ACLs allow, want one of ingress: %.200q; %d drop, want 2", len(allow), allow, drop)
	}

	in, out := simCluster(t, p).PolicyFlows("ns", "p")

	want := fmt.Sprintf("spec.egress: its rules cost %d flows of each node, at most 4096 are served: the policy allows nothing in this direction", out)
	if in != 4 || out < 500_000 || !strings.HasSuffix(event, ": "+want) {
		t.Errorf("costs %d and %d flows, Event %q, want %q", in, out, event, want)
	}
}

// TestNamespaceFlowsAreBounded checks that the policies of a namespace share its flows, the oldest
// first, and that the policies of other namespaces do not matter.
func TestNamespaceFlowsAreBounded(t *testing.T) {
	const beyond = "plan policy/ns/%s: not served: spec.egress: with the %d flows of its rules the policies of the namespace, oldest first, would cost more than 16384 flows of each node: the policy allows nothing in this direction"

	both := costly("ns", "both", 6, 1000)

	both.Spec.PolicyTypes, both.Spec.Ingress = nil, []networkingv1.NetworkPolicyIngressRule{{Ports: numbered(1)}}
	for _, tc := range []struct {
		name     string
		policies []*networkingv1.NetworkPolicy
		closed   map[string]string // Events by policy
	}{
		{"at the bound", []*networkingv1.NetworkPolicy{costly("ns", "a", 4, 4096), costly("ns", "b", 3, 4096), costly("ns", "c", 2, 4096), costly("ns", "d", 1, 4096)}, nil},
		{
			"the youngest is beyond",
			[]*networkingv1.NetworkPolicy{costly("ns", "a", 5, 2), costly("ns", "b", 3, 4096), costly("ns", "c", 2, 4096), costly("ns", "d", 1, 4096), costly("ns", "e", 4, 4096)},
			map[string]string{"a": fmt.Sprintf(beyond, "a", 2)},
		},
		{
			"of the same age the UID decides",
			[]*networkingv1.NetworkPolicy{costly("ns", "a", 1, 4096), costly("ns", "b", 1, 4096), costly("ns", "c", 1, 4096), costly("ns", "d", 1, 4096), costly("ns", "0", 1, 2)},
			map[string]string{"d": fmt.Sprintf(beyond, "d", 4096)},
		},
		{
			"a closed one uses nothing",
			[]*networkingv1.NetworkPolicy{costly("ns", "a", 1, 4096), costly("ns", "b", 2, 4096), costly("ns", "c", 3, 4096), costly("ns", "d", 4, 4000), costly("ns", "e", 5, 98), costly("ns", "f", 6, 96)},
			map[string]string{"e": fmt.Sprintf(beyond, "e", 98)},
		},
		{
			"a policy beyond its own bound uses nothing of the namespace's",
			[]*networkingv1.NetworkPolicy{costly("ns", "a", 1, 4098), costly("ns", "b", 2, 4096), costly("ns", "c", 3, 4096), costly("ns", "d", 4, 4096), costly("ns", "e", 5, 4096)},
			map[string]string{"a": "plan policy/ns/a: not served: spec.egress: its rules cost 4098 flows of each node, at most 4096 are served: the policy allows nothing in this direction"},
		},
		{
			"only one direction is beyond",
			[]*networkingv1.NetworkPolicy{costly("ns", "a", 1, 4096), costly("ns", "b", 2, 4096), costly("ns", "c", 3, 4096), costly("ns", "d", 4, 4000), both},
			map[string]string{"both": fmt.Sprintf(beyond, "both", 1000)},
		},
		{"other namespaces", []*networkingv1.NetworkPolicy{costly("x", "a", 1, 4096), costly("x", "b", 2, 4096), costly("y", "c", 3, 4096), costly("y", "d", 4, 4096), costly("ns", "e", 5, 4096)}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var objects []k8sruntime.Object
			for _, p := range tc.policies {
				objects = append(objects, p, podAt(p.Namespace, "pod-"+p.Name, 1))
			}

			c := simCluster(t, objects...)

			for _, p := range tc.policies {
				want := "from-lport"
				if tc.closed[p.Name] != "" {
					want = ""
				}

				if p == both {
					want = "to-lport"
				}

				if sides, event := allowing(t, c, p.Namespace, p.Name); sides != want || event != tc.closed[p.Name] {
					t.Errorf("%s allows %q, Event %q, want %q, %q", p.Name, sides, event, want, tc.closed[p.Name])
				}
			}
		})
	}
}

// TestBudgetAffects checks that a change affects the policies of the namespace that it opens or
// closes, and no others.
func TestBudgetAffects(t *testing.T) {
	oldest, small := costly("ns", "oldest", 1, 4096), costly("ns", "small", 7, 2)
	closed := costly("ns", "closed", 5, 4096)
	objects := []k8sruntime.Object{
		simNode(1), podAt("ns", "pod", 1), podAt("other", "pod", 1),
		oldest, costly("ns", "b", 2, 4096), costly("ns", "c", 3, 4096), costly("ns", "d", 4, 4094), closed, costly("ns", "also-closed", 6, 4096), small, costly("other", "x", 1, 4096),
	}

	const self, pods = "policy/ns/oldest", "selector namespace ns, pods all; "

	spec := func(flows int) func(*networkingv1.NetworkPolicy) {
		return func(p *networkingv1.NetworkPolicy) { p.Spec = costly("", "", 0, flows).Spec }
	}
	checkEvents(t, objects, []event{
		{"deleted", oldest, nil, pods + "policy/ns/closed; " + self},
		edit("costs nothing", oldest, spec(0), pods+"policy/ns/closed; "+self),
		edit("costs less, too much for another one", oldest, spec(4000), pods+self),
		edit("costs too much itself", oldest, spec(4098), pods+"policy/ns/closed; "+self),
		edit("replaced by a younger one", oldest, func(p *networkingv1.NetworkPolicy) { p.UID, p.CreationTimestamp = "new", metav1.Unix(9, 0) },
			pods+"policy/ns/closed; "+self),
		edit("the closed one fits", closed, spec(2), pods+"policy/ns/closed; policy/ns/small"),
		{"added, the oldest of all", nil, costly("ns", "new", 0, 4096), pods + "policy/ns/d; policy/ns/new; policy/ns/small; pod/ns/pod"},
		{"added, the youngest", nil, costly("ns", "new", 9, 4096), pods + "policy/ns/new; pod/ns/pod"},
		{"added in another namespace", nil, costly("other", "new", 0, 4096), "selector namespace other, pods all; policy/other/new; pod/other/pod"},
	})
}

// TestNamedPortsCount checks that a named port costs flows for each number that pods have for it,
// and that pods that change these affect the other policies of the namespace.
func TestNamedPortsCount(t *testing.T) {
	http := func(name string, number int32) *corev1.Pod {
		return podAt("ns", name, 1, corev1.ContainerPort{Name: "http", ContainerPort: number})
	}
	name := intstr.FromString("http")
	naming := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "naming", CreationTimestamp: metav1.Unix(1, 0)}}
	naming.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: blocks(1000), Ports: []networkingv1.NetworkPolicyPort{{Port: &name}, {Port: &name}}}}
	young := costly("ns", "young", 9, 4000)

	objects := []k8sruntime.Object{
		simNode(1), naming, costly("ns", "b", 2, 4096), costly("ns", "c", 3, 4096), young, http("one", 8080), http("same", 8080),
	}
	if in, out := simCluster(t, objects...).PolicyFlows("ns", "naming"); in != 2000 || out != 0 {
		t.Errorf("one number costs %d and %d flows, want 2000 and 0", in, out)
	}

	const self = "policy/ns/naming; "

	ended := http("two", 9090)
	ended.Status.Phase = corev1.PodSucceeded

	full := append([]k8sruntime.Object{costly("ns", "d", 4, 194)}, objects...)
	checkEvents(t, full, []event{
		{"another number", nil, http("two", 9090), self + "policy/ns/young; pod/ns/two"},
		{"the same number", nil, http("two", 8080), self + "pod/ns/two"},
		{"a pod that has ended", nil, ended, self + "pod/ns/two"},
		{"one of two with the number", http("one", 8080), nil, self + "pod/ns/one"},
	})
	two := http("two", 9090)
	relabelled := two.DeepCopy()
	relabelled.Labels = nil
	naming.Spec.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}

	three := append([]k8sruntime.Object{two}, full...)
	checkEvents(t, three, []event{
		{"the last one with the number", two, nil, self + "policy/ns/young; pod/ns/two"},
		{"a pod that ends", two, ended, self + "policy/ns/young; pod/ns/two"},
		{"a pod that the policy no longer selects", two, relabelled, self + "policy/ns/young; pod/ns/two"},
		{"a third number", nil, http("three", 7070), self + "policy/ns/young; pod/ns/three"}, // naming itself is closed
	})
}

// TestNamespaceLabelsCount checks that the labels of a namespace, which decide which numbers a
// named port has, affect other policies.
func TestNamespaceLabelsCount(t *testing.T) {
	pod := podAt("far", "web", 1, corev1.ContainerPort{Name: "http", ContainerPort: 80})
	far := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "far", Labels: map[string]string{"team": "a"}}}
	name := intstr.FromString("http")
	naming := costly("ns", "naming", 1, 0)
	naming.Spec = egressTo([]networkingv1.NetworkPolicyPort{{Port: &name}}, networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: far.Labels}})
	objects := []k8sruntime.Object{simNode(1), pod, podAt("ns", "pod", 1), far, naming, costly("ns", "b", 2, 4096), costly("ns", "c", 3, 4096), costly("ns", "d", 4, 4096), costly("ns", "young", 5, 4096)}
	checkEvents(t, objects, []event{
		edit("labels", far, func(n *corev1.Namespace) { n.Labels = nil }, "policy/ns/naming; policy/ns/young; pod/far/web"),
	})
}

// TestBudgetsFollowAnyOrder checks that planning anew only the affected policies is the same as
// planning a new cluster, after any changes, also if the stores are some changes ahead of Affected.
func TestBudgetsFollowAnyOrder(t *testing.T) {
	seed := randomtest.Seed(t)
	r := rand.New(rand.NewPCG(seed, 0))

	type change struct{ old, now any }

	name := intstr.FromString("http")
	c := simCluster(t, simNode(1))
	planned, closed, opened := map[plan.Key]string{}, 0, 0
	text := func(c *plan.Cluster, k plan.Key) string {
		rows, err := plan.Rows(c, k)
		return fmt.Sprint(plan.Format(rows), err)
	}

	for step := range 150 {
		var changes []change

		for range 1 + r.IntN(3) {
			namespace, i := fmt.Sprint("ns", r.IntN(2)), r.IntN(8)

			var old, now k8sruntime.Object

			store := c.Stores[plan.KindPolicy]

			if r.IntN(4) == 0 {
				pod := podAt(namespace, fmt.Sprint("pod", i), 1, corev1.ContainerPort{Name: "http", ContainerPort: int32(80 + r.IntN(3))})
				if r.IntN(2) == 0 {
					pod.Status.Phase = corev1.PodFailed
				}

				pod.UID = types.UID(fmt.Sprint(step))
				store, now = c.Stores[plan.KindPod], pod
			} else {
				p := costly(namespace, fmt.Sprint("p", i), int64(r.IntN(5)), 2*r.IntN(2200))

				p.UID = types.UID(fmt.Sprint(r.IntN(3)))
				if r.IntN(2) == 0 {
					p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: blocks(300 + r.IntN(500)), Ports: []networkingv1.NetworkPolicyPort{{Port: &name}}}}
					p.Spec.PolicyTypes = nil
				}

				now = p
			}

			key := now.(metav1.Object).GetNamespace() + "/" + now.(metav1.Object).GetName()
			if was, ok, _ := store.GetByKey(key); ok {
				old = was.(k8sruntime.Object)
			}

			switch {
			case old != nil && r.IntN(3) == 0:
				must(t, storeOf(c, old).Delete(old))
				changes = append(changes, change{old, nil})
			case old != nil:
				must(t, storeOf(c, now).Update(now))
				changes = append(changes, change{old, now})
			default:
				must(t, storeOf(c, now).Add(now))
				changes = append(changes, change{nil, now})
			}

			if r.IntN(3) == 0 { // planned before Affected has seen the change
				for k := range planned {
					if r.IntN(3) == 0 {
						planned[k] = text(c, k)
					}
				}
			}
		}

		for _, ch := range changes {
			for _, k := range plan.Affected(c, ch.old, ch.now) {
				if k.Kind == plan.KindPolicy {
					planned[k] = text(c, k)
				}
			}
		}

		fresh := simCluster(t, everything(c)...)
		for _, k := range fresh.Keys() {
			if k.Kind != plan.KindPolicy {
				continue
			}

			want := text(fresh, k)
			if planned[k] != want {
				t.Fatalf("step %d: %s was not planned anew (-new cluster +as it was left):\n%s", step, k, cmp.Diff(want, planned[k]))
			}

			if strings.Contains(want, "oldest first") {
				closed++
			} else {
				opened++
			}
		}
	}

	if closed < 100 || opened < 100 {
		t.Errorf("%d policies closed because of older ones, %d not: the test tests nothing", closed, opened)
	}
}

// everything returns the objects of a cluster.
func everything(c *plan.Cluster) (out []k8sruntime.Object) {
	for _, s := range c.Stores {
		for _, o := range s.List() {
			out = append(out, o.(k8sruntime.Object))
		}
	}

	return out
}

// TestOneChangeDoesNotReadOtherPolicies checks that a change of a policy costs the same whatever
// the other policies of the cluster contain: their flows are not counted again.
func TestOneChangeDoesNotReadOtherPolicies(t *testing.T) {
	cost := func(others, size int) float64 {
		p := costly("ns", "p", 1, 100)

		objects := []k8sruntime.Object{p, podAt("ns", "pod", 1)}

		for i := range others {
			namespace := fmt.Sprint("ns", i)
			objects = append(objects, costly("ns", fmt.Sprint("other", i), 2, size), costly(namespace, "p", 2, size), podAt(namespace, "pod", 1))
		}

		c := simCluster(t, objects...)
		planOf(c)

		n := 0

		return testing.AllocsPerRun(10, func() {
			n++
			now := costly("ns", "p", 1, 100+2*n)
			must(t, storeOf(c, now).Update(now))
			plan.Affected(c, p, now)
			p = now
		})
	}
	small, large := cost(50, 2), cost(50, 2000)
	t.Logf("%.0f allocations with small neighbours, %.0f with large ones, %.0f with none", small, large, cost(0, 0))

	if large > 1.2*small {
		t.Errorf("a change allocates %.0f times with small neighbours, %.0f times with large ones", small, large)
	}
}

// TestBudgetsOfManyPolicies checks that a namespace with thousands of policies is planned in one
// pass: each policy is counted once.
func TestBudgetsOfManyPolicies(t *testing.T) {
	made := func(n int) []k8sruntime.Object {
		var out []k8sruntime.Object
		for i := range n {
			out = append(out, costly("ns", fmt.Sprint("p", i), time.Now().Unix(), 100))
		}

		return out
	}
	one, _ := work(t, made(500))

	two, _ := work(t, made(1000))
	if float64(two) > 2.8*float64(one) {
		t.Errorf("planning 500 policies allocates %d kB, 1,000 %d kB: more than 2.8 times as much", one>>10, two>>10)
	}
}

// TestPolicyChanged_selectorsOfClosedPolicies checks that a policy affects only the selectors whose
// groups exist because of it: not those of rules that are not served, before and after the change.
func TestPolicyChanged_selectorsOfClosedPolicies(t *testing.T) {
	const peers = 4

	p := selecting("ns", "p", 1, "", absent(nil, 0, peers)...)
	edited := selecting("ns", "p", 1, "", absent(nil, peers, peers)...)
	pod := podAt("ns", "pod", 1)

	for _, tc := range []struct {
		name     string
		pods     []k8sruntime.Object
		old, now *networkingv1.NetworkPolicy
		want     int // selectors, one of them that of the policy's own pods
	}{
		{"created without pods", nil, nil, p, 1},
		{"changed without pods", nil, p, edited, 1},
		{"deleted without pods", nil, p, nil, 1},
		{"created with a pod", []k8sruntime.Object{pod}, nil, p, 1 + peers},
		{"changed with a pod", []k8sruntime.Object{pod}, p, edited, 1 + 2*peers},
		{"deleted with a pod", []k8sruntime.Object{pod}, p, nil, 1 + peers},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := simCluster(t, append([]k8sruntime.Object{labelled("ns", nil), simNode(1)}, tc.pods...)...)

			var old, now any

			if tc.old != nil {
				old = tc.old
				must(t, storeOf(c, tc.old).Add(tc.old))
			}

			planOf(c)

			if tc.now != nil {
				now = tc.now
				must(t, storeOf(c, tc.now).Add(tc.now))
			} else {
				must(t, storeOf(c, tc.old).Delete(tc.old))

				old = tc.old.DeepCopy() // informers pass another object than the stored one
			}

			selectors := 0

			for _, k := range plan.Affected(c, old, now) {
				if k.Kind == plan.KindSelector {
					selectors++
				}
			}

			if selectors != tc.want {
				t.Errorf("%d selectors are affected, want %d", selectors, tc.want)
			}
		})
	}
}

// TestPolicyChanged_storeIsAhead checks that the selectors of a served version of a policy are
// affected by its event, although plans have read later versions of objects before, with which it
// is not served.
func TestPolicyChanged_storeIsAhead(t *testing.T) {
	const peers = 60

	absents := func(first, n int) []networkingv1.NetworkPolicyPeer { return absent(nil, first, n) }
	served := selecting("ns", "p", 3, "", absents(0, peers)...)
	large := selecting("ns", "large", 1, "", absents(1000, 250)...)
	other := selecting("ns", "other", 2, "", absents(2000, 1)...)
	objects := []k8sruntime.Object{labelled("ns", nil), simNode(1), podAt("ns", "pod", 1), served, large, other}

	withoutPods := selecting("ns", "p", 3, "no such pod", absents(3000, peers)...)
	edited := selecting("ns", "p", 3, "", absents(3000, peers)...)
	grown := selecting("ns", "other", 2, "", absents(2000, 250)...) // leaves less than 60 of the share

	for _, tc := range []struct {
		name      string
		read      *networkingv1.NetworkPolicy // by a plan, before any event
		announced *networkingv1.NetworkPolicy // by an event of its own, which may be nil
		now       *networkingv1.NetworkPolicy // of the event
	}{
		{"its next version selects no pods", withoutPods, nil, withoutPods},
		{"the event of another policy announces that", withoutPods, selecting("ns", "new", 4, ""), withoutPods},
		{"an older policy leaves it no room", grown, nil, edited},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := simCluster(t, objects...)
			planOf(c)

			want := groupsOf(t, c, "ns")

			must(t, storeOf(c, tc.read).Add(tc.read))

			_, err := plan.Rows(c, plan.PolicyKey("ns", tc.read.Name))
			must(t, err)

			if tc.announced != nil {
				must(t, storeOf(c, tc.announced).Add(tc.announced))
				plan.Affected(c, nil, tc.announced)
			}

			must(t, storeOf(c, tc.now).Add(tc.now))

			affected, former := plan.Affected(c, served, tc.now), 0

			for _, group := range want {
				if slices.Contains(affected, plan.SelectorKey(group)) {
					former++
				}
			}

			if former < 1+peers { // at least those of the policy's own pods and its peers
				t.Errorf("%d selectors of the served version are affected, want %d", former, 1+peers)
			}
		})
	}
}
