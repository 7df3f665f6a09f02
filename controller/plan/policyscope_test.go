package plan_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

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

const tooManyMemberships = "with the selectors of its rules the policies of the namespace, oldest first, would have more than 128 selectors for pods of another namespace, 1024 for its own, or 1048576 memberships of pods"

// absent returns peers that each select the pods without another label: in these namespaces, or, if
// namespaces is nil, in the policy's own.
func absent(namespaces *metav1.LabelSelector, first, n int) []networkingv1.NetworkPolicyPeer {
	out := make([]networkingv1.NetworkPolicyPeer, n)
	for i := range out {
		out[i] = networkingv1.NetworkPolicyPeer{NamespaceSelector: namespaces, PodSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: fmt.Sprint("x", first+i), Operator: metav1.LabelSelectorOpDoesNotExist}},
		}}
	}

	return out
}

// selecting returns a policy of that age for the pods with the label app, with egress to the peers.
func selecting(namespace, name string, created int64, app string, to ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	p := costly(namespace, name, created, 0)

	p.Spec = egressTo(nil, to...)
	if app != "" {
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
	}

	return p
}

func labelled(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// groupsOf returns the names of the port groups of the namespace's pod with the name "pod".
func groupsOf(t *testing.T, c *plan.Cluster, namespace string) []string {
	t.Helper()

	rows, err := plan.Rows(c, plan.PodKey(namespace, "pod"))
	must(t, err)

	for _, r := range rows {
		if port, ok := r.(plan.LogicalSwitchPort); ok {
			return port.Groups
		}
	}

	t.Fatalf("pod %s/pod has no port", namespace)

	return nil
}

// portGroups returns the number of port groups that all plans together have.
func portGroups(c *plan.Cluster) int {
	n := 0
	for _, text := range planOf(c) {
		n += strings.Count(text, "Port_Group a")
	}

	return n
}

// TestPolicies_withoutPodsCostNothing checks that 40 policies with 256 selectors each have no port
// groups and no ACLs for their rules while they select no pod. If they select one, they can put the
// pods of another namespace into 128 groups only.
func TestPolicies_withoutPodsCostNothing(t *testing.T) {
	objects := []k8sruntime.Object{simNode(1), labelled("tenant", nil), labelled("victim", nil), podAt("victim", "pod", 1)}
	for i := range 40 {
		objects = append(objects, selecting("tenant", fmt.Sprint("p", i), int64(i), "none", absent(&metav1.LabelSelector{}, 256*i, 256)...))
	}

	c := simCluster(t, objects...)
	if got := groupsOf(t, c, "victim"); len(got) != 0 {
		t.Errorf("the other tenant's pod is in %d groups, want none", len(got))
	}

	if got := portGroups(c); got != 1 { // of the policies' own pods
		t.Errorf("%d port groups exist, want 1", got)
	}

	if rows, err := plan.Rows(c, plan.PolicyKey("tenant", "p0")); len(rows) != 0 || err != nil {
		t.Errorf("a policy without pods has rows %v, error %v", rows, err)
	}

	ended := podAt("tenant", "none", 1)
	ended.Status.Phase = corev1.PodSucceeded

	small := selecting("tenant", "small", 1, "none", absent(&metav1.LabelSelector{}, 0, 1)...)
	if got := portGroups(simCluster(t, simNode(1), small, ended)); got != 1 {
		t.Errorf("%d port groups exist with a pod that has ended, want 1", got)
	}

	c = simCluster(t, append(objects, podAt("tenant", "none", 1))...)
	if got := len(groupsOf(t, c, "victim")); got != 0 {
		t.Errorf("policies of 256 selectors put the other tenant's pod into %d groups, want none: each exceeds the bound", got)
	}

	for i := range 40 {
		objects = append(objects, selecting("tenant", fmt.Sprint("q", i), int64(100+i), "none", absent(&metav1.LabelSelector{}, 256*i, 60)...))
	}

	c = simCluster(t, append(objects, podAt("tenant", "none", 1))...)
	if got := len(groupsOf(t, c, "victim")); got != 120 {
		t.Errorf("policies of 60 selectors put the other tenant's pod into %d groups, want the 120 of the two oldest", got)
	}
}

// TestBudgets_membershipLimits checks each bound of the memberships that policies of a namespace may
// cause: the oldest come first, and the same selector counts once.
func TestBudgets_membershipLimits(t *testing.T) {
	team := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"team": name}}
	}
	everywhere := &metav1.LabelSelector{}
	namespaces := []k8sruntime.Object{simNode(1), podAt("ns", "pod", 1), labelled("ns", nil), labelled("a", team("a").MatchLabels), labelled("b", team("b").MatchLabels)}

	many := slices.Clone(namespaces) // 4,096 namespaces count as 65,536 pods
	for i := range 4093 {
		many = append(many, labelled(fmt.Sprint("n", i), nil))
	}

	large := slices.Clone(namespaces) // the share is larger than this bound
	for i := range 8 {
		large = append(large, simNode(2+i))
	}

	crowded := slices.Clone(namespaces) // 513 pods count as 1,024
	for i := range 513 {
		crowded = append(crowded, podAt("a", fmt.Sprint("pod", i), 1))
	}

	for _, tc := range []struct {
		name     string
		objects  []k8sruntime.Object
		policies []*networkingv1.NetworkPolicy
		closed   string // the policies that allow nothing
	}{
		{"at the bound of another namespace", namespaces, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(team("a"), 0, 100)...), selecting("ns", "p2", 2, "", absent(team("a"), 100, 28)...)}, ""},
		{"beyond it", namespaces, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 2, "", absent(team("a"), 0, 100)...), selecting("ns", "p2", 1, "", absent(team("a"), 100, 29)...)}, "p1"},
		{"a younger one fits", namespaces, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(team("a"), 0, 129)...), selecting("ns", "p2", 2, "", absent(team("a"), 0, 128)...)}, "p1"},
		{"the same selectors", namespaces, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(team("a"), 0, 128)...), selecting("ns", "p2", 2, "", absent(team("a"), 0, 128)...)}, ""},
		{"different namespaces", namespaces, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(team("a"), 0, 128)...), selecting("ns", "p2", 2, "", absent(team("b"), 0, 128)...)}, ""},
		{"one selector for both namespaces", namespaces, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(team("a"), 0, 128)...), selecting("ns", "p2", 2, "", absent(everywhere, 0, 1)...)}, "p2"},
		{"policies of different namespaces", namespaces, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(team("a"), 0, 128)...), selecting("a", "p2", 2, "", absent(team("a"), 128, 128)...)}, ""},
		{"at the bound of its own namespace", large, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(nil, 0, 256)...), selecting("ns", "p2", 2, "", absent(nil, 256, 256)...), selecting("ns", "p3", 3, "", absent(nil, 512, 256)...), selecting("ns", "p4", 4, "", absent(nil, 768, 256)...)}, ""},
		{"beyond that", large, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(nil, 0, 256)...), selecting("ns", "p2", 2, "", absent(nil, 256, 256)...), selecting("ns", "p3", 3, "", absent(nil, 512, 256)...), selecting("ns", "p4", 4, "", absent(nil, 768, 256)...), selecting("ns", "p5", 5, "", absent(nil, 1024, 1)...)}, "p5"},
		{"at the bound of memberships", many, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(everywhere, 0, 16)...)}, ""},
		{"a younger one fits there, too", many, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(everywhere, 0, 17)...), selecting("ns", "p2", 2, "", absent(everywhere, 0, 16)...)}, "p1"},
		{"beyond this one", many, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(everywhere, 0, 16)...), selecting("ns", "p2", 2, "", absent(nil, 0, 1)...)}, "p2"},
		{"pods count", crowded, []*networkingv1.NetworkPolicy{selecting("ns", "p1", 1, "", absent(team("a"), 0, 128)...), selecting("ns", "p2", 2, "", absent(team("b"), 0, 1)...)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := slices.Clone(tc.objects)
			for _, p := range tc.policies {
				objects = append(objects, p, podAt(p.Namespace, "pod-"+p.Name, 1))
			}

			c := simCluster(t, objects...)

			for _, p := range tc.policies {
				sides, event := allowing(t, c, p.Namespace, p.Name)
				if isClosed := p.Name == tc.closed; (sides == "") != isClosed || strings.Contains(event, tooManyMemberships) != isClosed {
					t.Errorf("%s allows %q, Event %q; closed should be %v", p.Name, sides, event, isClosed)
				}
			}
		})
	}
}

// TestBudgets_podsOfNamespace checks that the pods of a namespace count as the next power of two, and
// that a pod which makes the difference affects the policies that no longer fit.
func TestBudgets_podsOfNamespace(t *testing.T) {
	objects := []k8sruntime.Object{simNode(1), podAt("ns", "pod", 1), labelled("far", nil)}
	for i := range 8192 {
		objects = append(objects, podAt("far", fmt.Sprint("pod", i), 1))
	}

	far := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "none", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	objects = append(objects, selecting("ns", "p", 1, "", absent(far, 0, 127)...)) // 127 × 8,192 < 2^20

	c := simCluster(t, objects...)
	if sides, event := allowing(t, c, "ns", "p"); sides != "from-lport" || event != "" {
		t.Fatalf("with 8,192 pods, the policy allows %q, Event %q", sides, event)
	}

	one := podAt("far", "one", 1)
	must(t, storeOf(c, one).Add(one))

	if affected := plan.Affected(c, nil, one); !slices.Contains(affected, plan.PolicyKey("ns", "p")) {
		t.Errorf("the pod does not affect the policy: %v", affected)
	}

	if sides, event := allowing(t, c, "ns", "p"); sides != "" || !strings.Contains(event, tooManyMemberships) {
		t.Errorf("with 8,193 pods, the policy allows %q, Event %q", sides, event)
	}
}

// TestBudgets_keepPoliciesWithoutPods checks that a policy which has lost its last pod keeps its port
// groups until the next full sync: a pod that comes and goes does not add and remove them.
func TestBudgets_keepPoliciesWithoutPods(t *testing.T) {
	p, pod, far := selecting("ns", "p", 1, "", absent(&metav1.LabelSelector{}, 0, 1)...), podAt("ns", "pod", 1), podAt("far", "pod", 1)

	c := simCluster(t, simNode(1), labelled("far", nil), far, p)
	planOf(c)
	must(t, storeOf(c, pod).Add(pod))

	group := "selector/" + groupKey(t, p)
	if got, want := fmt.Sprint(plan.Affected(c, nil, pod)), "["+group+" policy/ns/p pod/far/pod pod/ns/pod]"; got != want {
		t.Errorf("the first pod affects %v, want %v", got, want)
	}

	must(t, storeOf(c, pod).Delete(pod))

	if got := fmt.Sprint(plan.Affected(c, pod, nil)); got != "[pod/ns/pod]" {
		t.Errorf("the last pod's end affects %v, want only the pod", got)
	}

	edited := selecting("ns", "p", 1, "", absent(&metav1.LabelSelector{}, 0, 1)...)
	edited.Spec.Egress[0].Ports = numbered(1)
	must(t, storeOf(c, p).Update(edited))

	subject := "selector/" + subjectKey(t, p)
	if got, want := fmt.Sprint(plan.Affected(c, p, edited)), "["+min(group, subject)+" "+max(group, subject)+" policy/ns/p]"; got != want {
		t.Errorf("another port affects %v, want %v", got, want)
	}

	if got := groupsOf(t, c, "far"); len(got) != 1 {
		t.Errorf("without the pod, the other one is in groups %v, want one", got)
	}

	c.Keys() // as a full sync does

	if got := groupsOf(t, c, "far"); len(got) != 0 {
		t.Errorf("after a full sync, the other pod is in groups %v", got)
	}
}

// groupKey returns the name of the group of the first peer of a policy that is served with a pod.
func groupKey(t *testing.T, p *networkingv1.NetworkPolicy) string {
	t.Helper()

	names, err := plan.SelectorsOf(p)
	must(t, err)

	subject := subjectKey(t, p)

	names = slices.DeleteFunc(names, func(name string) bool { return name == subject })
	if len(names) != 1 {
		t.Fatalf("the policy has groups %v, want one beside that of its pods", names)
	}

	return names[0]
}

// subjectKey returns the name of the group of all pods in the policy's namespace.
func subjectKey(t *testing.T, p *networkingv1.NetworkPolicy) string {
	t.Helper()

	names, err := plan.SelectorsOf(selecting(p.Namespace, "other", 1, ""))
	must(t, err)

	return names[0]
}

// TestBudgets_sharedGroup checks that the pods of a port group which two policies begin to use at the
// same time are planned again, and that those of a group that exists already are not.
func TestBudgets_sharedGroup(t *testing.T) {
	everywhere, pod, far := absent(&metav1.LabelSelector{}, 0, 1), podAt("ns", "pod", 1), podAt("far", "far", 1)
	one, two := selecting("ns", "one", 1, "", everywhere...), selecting("ns", "two", 2, "", everywhere...)

	for _, tc := range []struct {
		name      string
		objects   []k8sruntime.Object
		wantsFars bool
	}{
		{"both begin", nil, true},
		{"another namespace has the group", []k8sruntime.Object{selecting("other", "p", 1, "", everywhere...), podAt("other", "pod", 1)}, false},
		{"another namespace has it without a pod", []k8sruntime.Object{selecting("other", "p", 1, "", everywhere...)}, true},
	} {
		c := simCluster(t, append(tc.objects, simNode(1), labelled("ns", nil), labelled("far", nil), labelled("other", nil), far, one, two)...)
		planOf(c)
		must(t, storeOf(c, pod).Add(pod))

		affected := plan.Affected(c, nil, pod)
		if got := slices.Contains(affected, plan.PodKey("far", "far")); got != tc.wantsFars {
			t.Errorf("%s: the other pod is affected: %v, want %v: %v", tc.name, got, tc.wantsFars, affected)
		}
	}
}

// TestBudgets_movedSelector checks that the pods of a selector are planned again when the selector
// moves from a closed direction of a policy to the served direction.
func TestBudgets_movedSelector(t *testing.T) {
	p := selecting("ns", "p", 1, "", absent(&metav1.LabelSelector{}, 0, 129)...)
	p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)

	moved := p.DeepCopy()
	moved.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: moved.Spec.Egress[0].To[:1]}}

	c := simCluster(t, simNode(1), labelled("far", nil), podAt("ns", "pod", 1), podAt("far", "pod", 1), p)
	if planOf(c); len(groupsOf(t, c, "far")) != 0 {
		t.Fatal("129 selectors are served")
	}

	must(t, storeOf(c, p).Update(moved))

	if affected := plan.Affected(c, p, moved); !slices.Contains(affected, plan.PodKey("far", "pod")) {
		t.Errorf("the pod is not affected: %v", affected)
	}

	if got := groupsOf(t, c, "far"); len(got) != 1 {
		t.Errorf("the pod is in groups %v, want one", got)
	}
}

// TestBudgets_announceEveryChange checks that planning anew only the affected owners is the same as
// planning a new cluster, after any changes of pods, namespaces and policies, also if the stores are
// some changes ahead of Affected. It ends when the changes have closed directions, left policies without
// rows and put pods into groups often enough, which takes some seeds longer than others.
func TestBudgets_announceEveryChange(t *testing.T) {
	for _, namespaces := range []int{3, 10} {
		t.Run(fmt.Sprint(namespaces, " namespaces"), func(t *testing.T) { announceEveryChange(t, namespaces) })
	}
}

func announceEveryChange(t *testing.T, namespaces int) {
	t.Helper()

	r := rand.New(rand.NewPCG(randomtest.Seed(t), 1))
	w := &world{r: r, c: simCluster(t, simNode(1)), namespaces: namespaces, planned: map[plan.Key]string{}}

	closed, idle, groups := 0, 0, 0
	isEnough := func() bool { return closed >= 10 && idle >= 20 && groups >= 100 }

	for step := 0; step < 100 || step < 400 && !isEnough(); step++ {
		for range 1 + r.IntN(3) {
			w.change(t, step)
		}

		w.announce()

		fresh := simCluster(t, everything(w.c)...)
		want := planOf(fresh)

		for k, text := range want {
			if k.Kind != plan.KindPolicy && k.Kind != plan.KindSelector && k.Kind != plan.KindPod {
				continue
			}

			if diff := cmp.Diff(text, w.planned[k]); diff != "" {
				t.Fatalf("step %d: %s was not planned anew (-new cluster +as it was left):\n%s", step, k, diff)
			}

			closed += strings.Count(text, "oldest first")
			groups += strings.Count(text, "in Port_Group.ports")

			if k.Kind == plan.KindPolicy && text == "" {
				idle++
			}
		}
	}

	if !isEnough() {
		t.Errorf("%d directions closed, %d policies without rows, %d pods in groups: the test tests nothing", closed, idle, groups)
	}
}

// world is a cluster that changes at random, with the plans of its owners as they were left.
type world struct {
	r          *rand.Rand
	c          *plan.Cluster
	namespaces int
	planned    map[plan.Key]string
	changes    []struct{ old, now any } // that Affected has not seen
}

// change changes, adds or removes an object. Now and then, some owners are planned before Affected
// has seen that.
func (w *world) change(t *testing.T, step int) {
	t.Helper()

	r, namespace := w.r, fmt.Sprint("ns", w.r.IntN(w.namespaces))

	var now k8sruntime.Object

	isPermanent := false

	switch r.IntN(8) {
	case 0:
		now = labelled(namespace, map[string]string{"team": fmt.Sprint(r.IntN(2))})
	case 1, 2, 3:
		i := r.IntN(4)
		pod := podAt(namespace, fmt.Sprint("pod", i), 1, corev1.ContainerPort{Name: "http", ContainerPort: int32(80 + r.IntN(2))})
		pod.UID = types.UID(fmt.Sprint(step))

		// Policies keep what they have if their last pod ends. A new cluster does not know that. So
		// the pods that policies select stay.
		if isPermanent = i < 2; !isPermanent && r.IntN(2) == 0 {
			pod.Labels = map[string]string{fmt.Sprint("x", r.IntN(200)): "", "app": pod.Labels["app"]}
		}

		now = pod
	default:
		peers := absent(nil, r.IntN(3), 1)

		switch r.IntN(4) {
		case 0:
			peers = absent(&metav1.LabelSelector{}, 100*r.IntN(3), 1+r.IntN(100))
		case 1:
			peers = absent(&metav1.LabelSelector{MatchLabels: map[string]string{"team": fmt.Sprint(r.IntN(2))}}, 50*r.IntN(5), 1+r.IntN(100))
		}

		app := fmt.Sprint("pod", r.IntN(2))
		if w.c.Pod(namespace, "pod0") != nil && r.IntN(3) == 0 {
			app = ""
		}

		p := selecting(namespace, fmt.Sprint("p", r.IntN(6)), int64(r.IntN(5)), app, peers...)
		p.UID = types.UID(fmt.Sprint(r.IntN(3)))

		if r.IntN(3) == 0 {
			p.Spec.PolicyTypes = nil
			p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: absent(nil, r.IntN(3), 1), Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("http"))}}}}
		}

		now = p
	}

	var old any

	store, o := storeOf(w.c, now), now.(metav1.Object)

	key := o.GetName()
	if o.GetNamespace() != "" {
		key = o.GetNamespace() + "/" + key
	}

	was, exists, _ := store.GetByKey(key)
	if exists {
		old = was
	}

	if exists && !isPermanent && r.IntN(3) == 0 {
		must(t, store.Delete(was))

		w.changes = append(w.changes, struct{ old, now any }{old, nil})
	} else {
		must(t, store.Update(now))

		w.changes = append(w.changes, struct{ old, now any }{old, now})
	}

	if r.IntN(3) == 0 {
		for k := range w.planned {
			if r.IntN(3) == 0 {
				w.plan(k)
			}
		}
	}
}

func (w *world) plan(k plan.Key) {
	rows, err := plan.Rows(w.c, k)

	text := plan.Format(rows)
	if err != nil {
		text += err.Error()
	}

	// A group that is removed takes its members with it.
	gone := goneGroups(map[plan.Key]string{k: w.planned[k]}, map[plan.Key]string{k: text})
	for other := range w.planned {
		w.planned[other] = gone.Replace(w.planned[other])
	}

	w.planned[k] = text
}

// announce plans the owners that the changes affect, and then the pods that refer to port groups
// which do not exist: the controller retries these, because it cannot write them.
func (w *world) announce() {
	for _, ch := range w.changes {
		for _, k := range plan.Affected(w.c, ch.old, ch.now) {
			w.plan(k)
		}
	}

	w.changes = nil

	groups := map[string]bool{}

	for _, text := range w.planned {
		for _, found := range regexp.MustCompile(`(?m)^Port_Group (\w+)$`).FindAllStringSubmatch(text, -1) {
			groups[found[1]] = true
		}
	}

	for k, text := range w.planned {
		_, list, _ := strings.Cut(text, "in Port_Group.ports: ")

		list, _, _ = strings.Cut(list, "\n")
		if k.Kind == plan.KindPod && list != "" && slices.ContainsFunc(strings.Split(list, ", "), func(g string) bool { return !groups[g] }) {
			w.plan(k)
		}
	}
}
