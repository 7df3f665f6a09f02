package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Bounds of the victim's pod starts, as multiples of those with the same number of API calls that no
// plan reads.
const medianFactor, p95Factor = 2, 3

// callRate is the number of the tenant's API calls per second.
const callRate = 20

// otherTenants is the number of further tenants, each with one namespace.
const otherTenants = 19

// policyLoad is what the tenants do while the victim's pods start.
type policyLoad struct {
	name     string
	policies []*networkingv1.NetworkPolicy          // with their namespaces
	call     func(ctx context.Context, i int) error // callRate times a second
}

// Policies measures how long a victim's pods take to start while tenants of other namespaces have
// policies with many selectors, and one of them changes labels of its pods. The tenants keep to all
// documented bounds. For comparison, it first makes as many API calls that concern ConfigMaps only.
func Policies(ctx context.Context, o Options) (report *Report, err error) {
	g, err := newGround(ctx, o.Lab, o.Log)

	report = newReport("policies", o)
	defer func() { err = errors.Join(err, g.down(err != nil || len(report.Broken) > 0)) }()

	if err != nil {
		return report, err
	}

	for i := range 3 {
		if _, err := g.AddPod(ctx, tenantPod(hostile, i)); err != nil {
			return report, err
		}
	}

	for _, namespace := range otherNamespaces() {
		if _, err := g.AddPod(ctx, tenantPod(namespace, 0)); err != nil {
			return report, err
		}
	}

	if err := g.createConfigMap(ctx); err != nil {
		return report, err
	}

	var base []int64

	loads := g.policyLoads()
	for i, load := range loads {
		starts, err := g.startsUnder(ctx, load, o.For/time.Duration(len(loads)))
		if err != nil {
			return report, fmt.Errorf("%s: %w", load.name, err)
		}

		report.starts("a victim's pod starts, "+load.name, starts)

		ms := millis(starts)
		if i == 0 {
			base = ms
			continue
		}

		for _, q := range []struct {
			quantile float64
			factor   int64
		}{{0.5, medianFactor}, {0.95, p95Factor}} {
			if got, most := quantile(ms, q.quantile), q.factor*quantile(base, q.quantile); got > most {
				report.Broken = append(report.Broken, fmt.Sprintf("a victim's pods, %s: p%.0f is %d ms, more than %d ms, which is %d times that with ConfigMaps",
					load.name, 100*q.quantile, got, most, q.factor))
			}
		}
	}

	return report, ctx.Err()
}

// policyLoads returns the loads. The first is the one for comparison.
func (g *ground) policyLoads() []policyLoad {
	return []policyLoad{
		{"ConfigMaps", nil, g.changeConfigMap},
		{"policies without pods", absentPolicies(hostile, 40, 256, "none", &metav1.LabelSelector{}), g.changeConfigMap},
		{"policies beyond the bound", absentPolicies(hostile, 40, 256, "web", &metav1.LabelSelector{}), g.changeConfigMap},
		{"policies at the bound", absentPolicies(hostile, 4, 32, "web", &metav1.LabelSelector{}), g.changeConfigMap},
		{"labels that change", absentPolicies(hostile, 16, 256, "web", nil), g.changeLabel},
		{"policies of twenty namespaces, each at the bound", boundedPolicies(), g.changeConfigMap},
	}
}

// otherNamespaces returns the namespaces of the other tenants.
func otherNamespaces() (out []string) {
	for i := range otherTenants {
		out = append(out, fmt.Sprintf("%s-other%d", hostile, i))
	}

	return out
}

// boundedPolicies returns policies of all tenants, each with as many selectors as a namespace may have
// for the pods of any one other namespace.
func boundedPolicies() (out []*networkingv1.NetworkPolicy) {
	for _, namespace := range append(otherNamespaces(), hostile) {
		out = append(out, absentPolicies(namespace, 4, 32, "web", &metav1.LabelSelector{})...)
	}

	return out
}

// tenantPod returns the i-th of the tenant's pods in the namespace.
func tenantPod(namespace string, i int) lab.PodSpec {
	return lab.PodSpec{
		Namespace: namespace, Name: fmt.Sprint("wired", i), Node: fmt.Sprint("node", 1+i%2), Labels: map[string]string{"app": "web"},
	}
}

// absentPolicies returns policies of a tenant for its pods with the label app, each with some peers
// that select the pods without the label flip in these namespaces, or, if namespaces is nil, in the
// tenant's own. No two peers are equal.
func absentPolicies(tenant string, n, peers int, app string, namespaces *metav1.LabelSelector) []*networkingv1.NetworkPolicy {
	var out []*networkingv1.NetworkPolicy

	for i := range n {
		p := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: fmt.Sprint("absent", i)},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
				Ingress:     make([]networkingv1.NetworkPolicyIngressRule, 1),
			},
		}

		for peer := range peers {
			p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{
				NamespaceSelector: namespaces,
				PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: "flip", Operator: metav1.LabelSelectorOpDoesNotExist},
					{Key: fmt.Sprintf("%s-%d-%d", tenant, i, peer), Operator: metav1.LabelSelectorOpDoesNotExist},
				}},
			})
		}

		out = append(out, p)
	}

	return out
}

// startsUnder creates the load's policies, starts pods of the victim while the load's calls are
// made, and deletes the policies.
func (g *ground) startsUnder(ctx context.Context, load policyLoad, long time.Duration) ([]start, error) {
	for _, p := range load.policies {
		if _, err := g.client.NetworkingV1().NetworkPolicies(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}

	g.say("%s at %s", load.name, time.Now().Format("15:04:05.0"))

	calling, end := context.WithCancel(ctx)
	called := make(chan error)

	go func() { called <- repeat(calling, time.Second/callRate, load.call) }()

	starts, err := g.starts(ctx, long)

	end()

	err = errors.Join(err, <-called)

	for _, p := range load.policies {
		err = errors.Join(err, g.client.NetworkingV1().NetworkPolicies(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}))
	}

	return starts, errors.Join(err, g.caughtUp(ctx))
}

// repeat makes a call each time the pause has passed, until the context ends. It returns the first
// error.
func repeat(ctx context.Context, pause time.Duration, call func(context.Context, int) error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()

	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		if err := call(ctx, i); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

const countedMap = "counted" // the tenant's ConfigMap

func (g *ground) createConfigMap(ctx context.Context) error {
	_, err := g.client.CoreV1().ConfigMaps(hostile).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: countedMap}}, metav1.CreateOptions{})
	return err
}

// changeConfigMap changes the tenant's ConfigMap.
func (g *ground) changeConfigMap(ctx context.Context, i int) error {
	change := fmt.Appendf(nil, `{"data": {"i": "%d"}}`, i)
	_, err := g.client.CoreV1().ConfigMaps(hostile).Patch(ctx, countedMap, types.MergePatchType, change, metav1.PatchOptions{})

	return err
}

// changeLabel adds the label flip to one of the tenant's three pods, or removes it.
func (g *ground) changeLabel(ctx context.Context, i int) error {
	value := "null"
	if i/3%2 == 0 {
		value = `"x"`
	}

	change := fmt.Appendf(nil, `{"metadata": {"labels": {"flip": %s}}}`, value)
	_, err := g.client.CoreV1().Pods(hostile).Patch(ctx, fmt.Sprint("wired", i%3), types.MergePatchType, change, metav1.PatchOptions{})

	return err
}
