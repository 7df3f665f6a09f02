package campaign

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

const (
	hostileRate = 20 // writes per second of the tenant
	waitLimit   = 2 * time.Second

	// allowed are the networks of externalIPs. Without them, a tenant may intercept the cluster's
	// traffic to any outside address (CVE-2020-8554), as documented.
	allowed = "--allow-external-ips=203.0.113.0/24,2001:db8:10::/64"
)

// API lets a tenant with edit rights in one namespace write harmful values into every field that it
// can write. The victim in another namespace must lose no packets, its rows must not change, and
// none of its new pods may wait longer than waitLimit for its address.
func API(ctx context.Context, o Options) (report *Report, err error) {
	o.Lab.ControllerArgs, o.Lab.AgentArgs = append(o.Lab.ControllerArgs, allowed), append(o.Lab.AgentArgs, allowed)
	g, err := newGround(ctx, o.Lab, o.Log)
	report = newReport("api", o)
	defer func() { err = errors.Join(err, g.down(err != nil || len(report.Broken) > 0)) }()
	if err != nil {
		return report, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := g.guard(ctx, "web", ""); err != nil {
		return report, err
	}
	t, err := newTenant(ctx, g, rand.New(rand.NewPCG(o.Seed, 0)))
	if err != nil {
		return report, err
	}
	if err := g.startProbes(ctx, g.paths(), time.Minute); err != nil {
		return report, err
	}
	idle, err := g.waits(ctx, min(o.For/4, time.Minute))
	if err != nil {
		return report, err
	}
	rows, err := watchRows(ctx, g.NBSocket())
	if err != nil {
		return report, err
	}
	defer rows.close()
	g.say("the attack begins at %s", time.Now().Format("15:04:05.0"))
	g.bucket.Store(1)
	attack, end := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		t.attack(attack, hostileRate)
		close(stopped)
	}()
	under, err := g.waits(ctx, o.For)
	end()
	<-stopped
	report.Broken = append(report.Broken, rows.differences()...)
	if err != nil {
		report.Broken = append(report.Broken, err.Error())
	}
	for _, kind := range slices.Sorted(maps.Keys(t.done)) {
		report.Figures = append(report.Figures, Figure{kind, fmt.Sprint(t.done[kind])})
	}
	report.waits("a victim's pod waits for its address, idle", idle)
	report.waits("a victim's pod waits for its address, under attack", under)
	if worst := slices.Max(append(under, 0)); time.Duration(worst)*time.Millisecond > waitLimit {
		report.Broken = append(report.Broken, fmt.Sprintf("a victim's pod waited %d ms for its address, more than %s", worst, waitLimit))
	}
	g.accountAll(report, "a tenant writes", func(*probe) bool { return true })
	return report, ctx.Err()
}

// waits adds the median, the 99th percentile and the maximum.
func (r *Report) waits(name string, ms []int64) {
	r.Figures = append(r.Figures, Figure{name, fmt.Sprintf("p50 %d ms, p99 %d ms, longest %d ms, of %d", quantile(ms, 0.5), quantile(ms, 0.99), slices.Max(append(ms, 0)), len(ms))})
}

// accountAll counts a campaign of one step: no path selected by must may lose packets.
func (g *ground) accountAll(report *Report, kind string, must func(*probe) bool) {
	g.bucket.Store(2)
	time.Sleep(lostAfter) // packets in flight
	lost := map[string]Count{}
	for _, p := range g.probes {
		c := p.settle(1)
		total := lost[p.path.Name]
		total.add(c)
		lost[p.path.Name] = total
		if must(p) && (c.Lost > 0 || c.Sent == 0) {
			report.Broken = append(report.Broken, fmt.Sprintf("%s lost %d of %d, %s", p, c.Lost, c.Sent, c.when()))
		}
	}
	report.addStep(kind, 0, lost)
}

// guard creates a policy for the pods with a label: they accept traffic to their port, and if from
// is set, only from pods with that label.
func (g *ground) guard(ctx context.Context, app, from string) error {
	port := intstr.FromInt32(podPort)
	var ports []networkingv1.NetworkPolicyPort
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	rule := networkingv1.NetworkPolicyIngressRule{Ports: ports}
	if from != "" {
		rule.From = []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": from}}}}
	}
	_, err := g.client.NetworkingV1().NetworkPolicies(victim).Create(ctx, &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Ingress: []networkingv1.NetworkPolicyIngressRule{rule}},
	}, metav1.CreateOptions{})
	return err
}

// waits creates pods of the victim, one after another, and returns their waiting times for an
// address in milliseconds.
func (g *ground) waits(ctx context.Context, long time.Duration) (ms []int64, err error) {
	for end := time.Now().Add(long); time.Now().Before(end); {
		took, err := g.waitOne(ctx)
		if err != nil {
			return ms, err
		}
		ms = append(ms, took.Milliseconds())
		time.Sleep(300 * time.Millisecond)
	}
	return ms, nil
}

func (g *ground) waitOne(ctx context.Context) (time.Duration, error) {
	const poll = 10 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a victim's pod has no address after a minute"))
	defer cancel()
	pods := g.client.CoreV1().Pods(victim)
	name, now := fmt.Sprintf("new%d", g.serial.Add(1)), int64(0)
	began := time.Now()
	_, err := pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "new"}},
		Spec:       corev1.PodSpec{NodeName: fmt.Sprintf("node%d", 1+g.serial.Load()%2), Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	for {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return 0, fmt.Errorf("wait for a victim's pod: %w", errors.Join(err, context.Cause(ctx)))
		}
		if _, err := annotation.ParsePod(p.Annotations); err == nil {
			took := time.Since(began)
			return took, pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		time.Sleep(poll)
	}
}
