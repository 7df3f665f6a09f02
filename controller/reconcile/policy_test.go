package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/reconcile"
	"github.com/ovn-ebpf/ovn-ebpf/test/randomtest"
)

// TestPolicyAffected checks that Affected returns every owner whose rows change. It changes, adds or
// deletes one object in each of many random clusters of policies, namespaces and pods, and compares
// all plans before and after.
func TestPolicyAffected(t *testing.T) {
	seed := randomtest.Seed(t)
	r := policyWorld{rand.New(rand.NewPCG(seed, 0))}
	changed := 0

	for range 500 {
		objects := r.objects()
		i := r.IntN(len(objects))
		before, after := slices.Clone(objects), slices.Clone(objects)
		after[i] = r.another(objects[i])
		was, is := any(before[i]), any(after[i])

		switch r.IntN(6) {
		case 0:
			before, was = slices.Delete(before, i, i+1), nil
		case 1:
			after, is = slices.Delete(after, i, i+1), nil
		}

		old, now := newCluster(t, before), newCluster(t, before)
		keys := append(old.Keys(), newCluster(t, after).Keys()...)
		portGroups(now, keys) // plans all owners

		apply(t, now, was, is)

		affected := plan.Affected(now, was, is)

		groups := portGroups(now, keys)
		for _, k := range keys {
			if slices.Contains(affected, k) {
				continue
			}

			if a, b := planned(old, k, groups), planned(now, k, groups); a != b {
				t.Fatalf("%T %v to %v: %s is not affected but was\n%s\nand is\n%s", was, was, is, k, a, b)
			}
		}

		changed += len(affected)
	}

	if changed < 500 {
		t.Errorf("%d owners affected: the changes change nothing", changed)
	}
}

func newCluster(t *testing.T, objects []runtime.Object) *plan.Cluster {
	c, err := reconcile.NewCluster(plan.Config{
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")},
	}, objects...)
	if err != nil {
		t.Fatal(err)
	}

	return c
}

// apply changes the object in the cluster's stores. Either version may be nil.
func apply(t *testing.T, c *plan.Cluster, was, is any) {
	t.Helper()

	var err error

	if is != nil {
		err = c.Stores[plan.KindOf(is)].(cache.Indexer).Update(is)
	} else {
		err = c.Stores[plan.KindOf(was)].(cache.Indexer).Delete(was)
	}

	if err != nil {
		t.Fatal(err)
	}
}

// portGroups plans the owners and returns the port groups that they have.
func portGroups(c *plan.Cluster, keys []plan.Key) map[string]bool {
	out := map[string]bool{}

	for _, k := range keys {
		rows, _ := plan.Rows(c, k) // malformed objects have no rows
		for _, row := range rows {
			if g, ok := row.(plan.PortGroup); ok {
				out[g.Name] = true
			}
		}
	}

	return out
}

// planned returns the owner's rows. The members of a removed group are removed with it.
func planned(c *plan.Cluster, k plan.Key, groups map[string]bool) string {
	rows, err := plan.Rows(c, k)
	for i, row := range rows {
		if p, ok := row.(plan.LogicalSwitchPort); ok {
			p.Groups = slices.DeleteFunc(p.Groups, func(g string) bool { return !groups[g] })
			rows[i] = p
		}
	}

	return fmt.Sprint(plan.Format(rows), err)
}

// policyWorld generates small clusters. They have few names and labels, so that many selectors match.
type policyWorld struct{ *rand.Rand }

func (r policyWorld) objects() []runtime.Object {
	out := []runtime.Object{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{
		annotation.NodeSubnets: `{"default": ["10.244.1.0/24"]}`,
	}}}}
	for i := range 3 {
		out = append(out, r.another(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns", i)}}))
	}

	for i := range 6 {
		out = append(out, r.another(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i%3), Name: fmt.Sprint("p", i)}}))
	}

	for i := range 1 + r.IntN(4) {
		out = append(out, r.another(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i%3), Name: fmt.Sprint("np", i)}}))
	}

	return out
}

// another returns a copy of the object with random contents.
func (r policyWorld) another(obj runtime.Object) runtime.Object {
	obj = obj.DeepCopyObject()
	switch obj := obj.(type) {
	case *corev1.Namespace:
		obj.Labels = r.labels()
		obj.Annotations = map[string]string{plan.ACLLogging: r.of("", "{}", `{"deny": "info"}`, `{"allow": "info"}`, "x")}
	case *corev1.Pod:
		obj.Labels = r.labels()
		obj.Annotations = map[string]string{annotation.PodNetworks: fmt.Sprintf(
			`{"default": {"ip_addresses": ["10.244.1.%d/24"], "mac_address": "0a:58:0a:f4:01:03"}}`, 3+r.IntN(200))}
		obj.Spec.NodeName = r.of("n", "n", "n", "")
		// The API server refuses other ports for an existing pod, so a pod with other ports is another pod.
		if obj.UID == "" || r.IntN(2) == 0 {
			obj.UID = types.UID(fmt.Sprint(r.Uint64()))
			obj.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
				{Name: r.of("a", "b", ""), ContainerPort: int32(80 + r.IntN(2))},
			}}}
		}

		obj.Status.Phase = corev1.PodPhase(r.of("Running", "Running", "Succeeded"))
	case *networkingv1.NetworkPolicy:
		obj.Spec = networkingv1.NetworkPolicySpec{PodSelector: *r.selector(), PolicyTypes: r.types()}
		for range r.IntN(3) {
			obj.Spec.Ingress = append(obj.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: r.peers(), Ports: r.ports()})
			obj.Spec.Egress = append(obj.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: r.peers(), Ports: r.ports()})
		}
	}

	return obj
}

func (r policyWorld) of(values ...string) string { return values[r.IntN(len(values))] }

func (r policyWorld) labels() map[string]string {
	out := map[string]string{}
	for range r.IntN(3) {
		out[r.of("k", "l")] = r.of("x", "y", "")
	}

	return out
}

func (r policyWorld) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: r.labels()}
	for range r.IntN(2) {
		e := metav1.LabelSelectorRequirement{Key: r.of("k", "l"), Operator: metav1.LabelSelectorOperator(r.of("In", "NotIn", "Exists", "DoesNotExist", "Wrong"))}
		if e.Operator == "In" || e.Operator == "NotIn" {
			e.Values = []string{r.of("x", "y"), r.of("x", "")}
		}

		s.MatchExpressions = append(s.MatchExpressions, e)
	}

	return s
}

func (r policyWorld) types() []networkingv1.PolicyType {
	var out []networkingv1.PolicyType
	for range r.IntN(3) {
		out = append(out, networkingv1.PolicyType(r.of("Ingress", "Egress")))
	}

	return out
}

func (r policyWorld) peers() []networkingv1.NetworkPolicyPeer {
	var out []networkingv1.NetworkPolicyPeer

	for range r.IntN(3) {
		var p networkingv1.NetworkPolicyPeer

		switch r.IntN(4) {
		case 0:
			p.PodSelector = r.selector()
		case 1:
			p.NamespaceSelector = r.selector()
		case 2:
			p.NamespaceSelector, p.PodSelector = r.selector(), r.selector()
		case 3:
			p.IPBlock = &networkingv1.IPBlock{CIDR: r.of("10.0.0.0/8", "::/0", "x")}
		}

		out = append(out, p)
	}

	return out
}

func (r policyWorld) ports() []networkingv1.NetworkPolicyPort {
	var out []networkingv1.NetworkPolicyPort

	for range r.IntN(3) {
		port := intstr.Parse(r.of("80", "0", "a", "b"))
		out = append(out, networkingv1.NetworkPolicyPort{Port: &port})
	}

	return out
}
