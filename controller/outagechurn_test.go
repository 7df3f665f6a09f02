package controller_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// churn changes the cluster about twenty times a second. It has its own way to
// the API server, which no outage cuts, and gives no name twice.
type churn struct {
	*world
	r        *rand.Rand
	cancel   context.CancelFunc
	done     chan error
	changes  changes
	serial   int
	pods     []string
	services []string
	policies []string
}

// mostPods leaves addresses free on each of the nodes: every pod shall have some in
// the end, however long the changes go on.
const mostPods = 300

// policies counts those that came and went: they change what is a node's.
const policies = "policies"

// changes are how often each object changed after it was made, by its key.
type changes struct {
	total int
	of    map[string]int
}

func startChurn(w *world, r *rand.Rand) *churn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &churn{world: w, r: r, cancel: cancel, done: make(chan error, 1), changes: changes{of: map[string]int{}}}
	w.t.Cleanup(cancel)

	go func() {
		for ctx.Err() == nil {
			if err := c.step(context.WithoutCancel(ctx)); err != nil {
				c.done <- err
				return
			}

			c.changes.total++

			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		}

		c.done <- nil
	}()

	return c
}

func (c *churn) stop() changes {
	c.t.Helper()
	c.cancel()

	if err := <-c.done; err != nil {
		c.t.Fatalf("change the cluster: %v", err)
	}

	return c.changes
}

func (c *churn) step(ctx context.Context) error {
	switch n := c.r.IntN(20); {
	case n < 8 && len(c.pods) < mostPods || len(c.pods) == 0:
		return c.addPod(ctx)
	case n < 13:
		return c.client.CoreV1().Pods("default").Delete(ctx, c.take(&c.pods), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	case n < 14 || len(c.services) == 0:
		return c.addService(ctx)
	case n < 18:
		name := c.services[c.r.IntN(len(c.services))]
		c.changes.of[plan.ServiceKey("default", name).String()]++
		_, err := c.client.DiscoveryV1().EndpointSlices("default").Update(ctx, c.slice(name), metav1.UpdateOptions{})

		return err
	case n < 19 || len(c.policies) == 0:
		return c.addPolicy(ctx)
	case c.r.IntN(2) == 0:
		c.changes.of[policies]++
		return c.client.NetworkingV1().NetworkPolicies("default").Delete(ctx, c.take(&c.policies), metav1.DeleteOptions{})
	default:
		return c.removeService(ctx)
	}
}

func (c *churn) name(kind string) string {
	c.serial++
	return fmt.Sprint(kind, "-", c.serial)
}

func (c *churn) take(list *[]string) string {
	i := c.r.IntN(len(*list))
	name := (*list)[i]
	*list = append((*list)[:i], (*list)[i+1:]...)

	return name
}

func (c *churn) addPod(ctx context.Context) error {
	name := c.name("pod")
	c.pods = append(c.pods, name)
	_, err := c.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": fmt.Sprint(c.r.IntN(3))}},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprint("node", 1+c.r.IntN(3)), Containers: []corev1.Container{{Name: "c", Image: "none"}},
		},
	}, metav1.CreateOptions{})

	return err
}

func (c *churn) addService(ctx context.Context) error {
	name := c.name("svc")
	c.services = append(c.services, name)
	// Its endpoints come after it: that is a change.
	c.changes.of[plan.ServiceKey("default", name).String()]++

	_, err := c.client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}

	_, err = c.client.DiscoveryV1().EndpointSlices("default").Create(ctx, c.slice(name), metav1.CreateOptions{})

	return err
}

func (c *churn) slice(service string) *discoveryv1.EndpointSlice {
	name, proto, port := "http", corev1.ProtocolTCP, int32(8080)

	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-a", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprint("10.244.0.", 3+c.r.IntN(200))}}},
	}
}

func (c *churn) removeService(ctx context.Context) error {
	name := c.take(&c.services)
	// Its endpoints go before it: that is a change too.
	c.changes.of[plan.ServiceKey("default", name).String()]++
	if err := c.client.DiscoveryV1().EndpointSlices("default").Delete(ctx, name+"-a", metav1.DeleteOptions{}); err != nil {
		return err
	}

	return c.client.CoreV1().Services("default").Delete(ctx, name, metav1.DeleteOptions{})
}

func (c *churn) addPolicy(ctx context.Context) error {
	c.changes.of[policies]++
	name := c.name("policy")
	c.policies = append(c.policies, name)
	// A selector of its own: what policies share comes and goes with the first and the last.
	app := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{fmt.Sprint(c.r.IntN(3)), name},
	}}}
	_, err := c.client.NetworkingV1().NetworkPolicies("default").Create(ctx, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: app, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &app}}}},
		},
	}, metav1.CreateOptions{})

	return err
}
