package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

const (
	hostileRate = 20 // writes per second of the tenant
	waitLimit   = 2 * time.Second

	// allowed are the networks of externalIPs: without them a tenant may take whatever the cluster
	// sends to any address outside (CVE-2020-8554), which the documents say.
	allowed = "--allow-external-ips=203.0.113.0/24,2001:db8:10::/64"
)

// API has a tenant who may edit one namespace write whatever hurts into every field that it can
// write. The victim in another namespace must lose nothing, its rows must stay as they are, and no
// new pod of it may wait longer than waitLimit for its address.
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
	before, err := g.victimsRows(ctx)
	if err != nil {
		return report, err
	}
	g.say("the attack begins at %s", time.Now().Format("15:04:05.0"))
	g.bucket.Store(1)
	attack, end := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		t.attack(attack, hostileRate)
		close(stopped)
	}()
	compared := make(chan []string)
	go func() { compared <- g.compareRows(attack, before) }()
	under, err := g.waits(ctx, o.For)
	end()
	<-stopped
	report.Broken = append(report.Broken, <-compared...)
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

// waits adds what p50, p99 and the longest were.
func (r *Report) waits(name string, ms []int64) {
	r.Figures = append(r.Figures, Figure{name, fmt.Sprintf("p50 %d ms, p99 %d ms, longest %d ms, of %d", quantile(ms, 0.5), quantile(ms, 0.99), slices.Max(append(ms, 0)), len(ms))})
}

// accountAll is the account of a campaign of one step: every path that must may lose nothing in it.
func (g *ground) accountAll(report *Report, kind string, must func(*probe) bool) {
	g.bucket.Store(2)
	time.Sleep(lostAfter) // what is on its way
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

// guard gives the pods of a label a policy: to their port, and if from is not "", from pods of that
// label only.
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

// waits makes pods of the victim's, one after the other, and returns how many milliseconds each
// waited for its address.
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

// tables are those whose rows are compared, and which columns are not: what grows with others'.
var tables = map[string][]string{
	"Logical_Switch_Port": nil, "Load_Balancer": nil, "ACL": nil, "Logical_Router_Port": nil, "NAT": nil, "Logical_Router_Static_Route": nil, "Logical_Router_Policy": nil,
	"Static_MAC_Binding": nil, "Port_Group": nil, "Address_Set": nil, "Logical_Router": {"load_balancer"}, "Logical_Switch": {"ports", "load_balancer"},
}

// victimsRows are the rows of the Northbound database that are not the tenant's, nor of pods that
// come and go, as text by table and UUID.
func (g *ground) victimsRows(ctx context.Context) (map[string]string, error) {
	rows := map[string]string{}
	for table, without := range tables {
		out, err := g.Exec(ctx, "central", "ovn-nbctl", "--timeout=30", "--format=json", "--no-leader-only", "list", table)
		if err != nil {
			return nil, err
		}
		var list struct {
			Headings []string
			Data     [][]json.RawMessage
		}
		if err := json.Unmarshal(out, &list); err != nil {
			return nil, fmt.Errorf("read table %s: %w", table, err)
		}
		for _, row := range list.Data {
			var text strings.Builder
			for i, cell := range row {
				if !slices.Contains(without, list.Headings[i]) && list.Headings[i] != "_uuid" {
					fmt.Fprintf(&text, "%s=%s ", list.Headings[i], cell)
				}
			}
			s := text.String()
			if !strings.Contains(s, hostile) && !strings.Contains(s, victim+"_new") && !strings.Contains(s, victim+"/new") {
				rows[table+" "+string(row[slices.Index(list.Headings, "_uuid")])] = s
			}
		}
	}
	return rows, nil
}

// difference is when a row was seen to differ.
type difference struct {
	first, last time.Time
	readings    int
}

// compareRows looks at the rows until ctx ends, and once more, and returns how they differed from
// what they were, when, and in how many readings. New ones may only be others'.
func (g *ground) compareRows(ctx context.Context, before map[string]string) []string {
	differ := map[string]*difference{}
	all := 0
	for last := false; !last; all++ {
		select {
		case <-ctx.Done():
			last = true
		case <-time.After(3 * time.Second):
		}
		at := time.Now()
		note := func(format string, args ...any) {
			text := fmt.Sprintf(format, args...)
			if differ[text] == nil {
				differ[text] = &difference{first: at}
			}
			differ[text].last = at
			differ[text].readings++
		}
		now, err := g.victimsRows(context.WithoutCancel(ctx))
		if err != nil {
			note("read rows: %v", err)
			continue
		}
		for id, was := range before {
			if is := now[id]; is != was {
				note("row %s was %s and is %s", id, was, is)
			}
		}
		for id, is := range now {
			if _, there := before[id]; !there && strings.Contains(is, victim) {
				note("row %s is new: %s", id, is)
			}
		}
	}
	const clock = "15:04:05.0"
	var out []string
	for _, text := range slices.Sorted(maps.Keys(differ)) {
		d := differ[text]
		out = append(out, fmt.Sprintf("%s (in %d of %d readings, from %s to %s)", text, d.readings, all, d.first.Format(clock), d.last.Format(clock)))
	}
	return out[:min(len(out), 20)]
}
