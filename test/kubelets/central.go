package kubelets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// database is one of OVN's databases in a member's pod.
type database struct{ name, container, file string }

var (
	northbound = database{"OVN_Northbound", "northbound", "ovnnb_db"}
	southbound = database{"OVN_Southbound", "southbound", "ovnsb_db"}
)

// central tests OVN's databases on three members.
type central struct {
	*Cluster
	servers *servers
	phases  []phase
	probes  int
}

// Central kills one member of OVN's databases, the leader, and all three, updates the chart and
// rolls it back, all under traffic: no established connection may be lost. A pod that is created
// while no member runs must wait, and get its network later. It restores a backup by the commands
// of docs/install.md, which must give the rows of before. It needs Options.Members 3 and
// Options.Traffic.
func (c *Cluster) Central(ctx context.Context) error {
	t := &central{Cluster: c}
	if err := t.run(ctx); err != nil {
		return fmt.Errorf("OVN's databases on %d members: %w", c.opts.Members, err)
	}

	return nil
}

func (t *central) run(ctx context.Context) error {
	if err := t.maintain(ctx); err != nil {
		return err
	}

	var err error
	if t.servers, err = t.startServers(ctx); err != nil {
		return err
	}

	for i, round := range []struct {
		steps []func(context.Context) error
		costs bool // northd makes all flows anew, so connections may be lost
	}{
		{steps: []func(context.Context) error{t.loseOne, t.loseLeader, t.loseAll, t.upgrade}},
		{steps: []func(context.Context) error{t.restore}, costs: true},
		{steps: []func(context.Context) error{t.rollback}},
	} {
		flows, err := t.startFlows(ctx, fmt.Sprintf("round%d", i), t.servers)
		if err != nil {
			return err
		}

		for _, step := range round.steps {
			if err = step(ctx); err != nil {
				break
			}
		}

		lost := t.stopFlows(ctx, flows, t.phases)
		if round.costs && lost != nil {
			t.step("%s", lost)
			lost = nil
		}

		if err := errors.Join(err, lost); err != nil {
			return err
		}
	}

	if err := t.removeFlows(ctx); err != nil {
		return err
	}

	return t.typing.complete(runCentral, "")
}

// maintain types the commands for a setting of one node and for the update of its Open vSwitch.
func (t *central) maintain(ctx context.Context) error {
	node := t.lab.Node(t.opts.Nodes).Name
	if _, err := t.typing.chapter(ctx, settingNode, "worker1", node, "eth1", lab.UplinkPlain); err != nil {
		return err
	}

	before, err := t.pods(ctx)
	if err != nil {
		return err
	}

	if _, err := t.typing.chapter(ctx, updatingSwitch, "worker1", node); err != nil {
		return err
	}

	after, err := t.pods(ctx)
	if err != nil {
		return err
	}

	if n := replacedPods(before["ovn-ebpf-ovs"], after["ovn-ebpf-ovs"]); n != 1 {
		return fmt.Errorf("%d pods of Open vSwitch were replaced, want that of %s", n, node)
	}

	if err := t.awaitReady(ctx); err != nil {
		return err
	}

	t.step("Open vSwitch of %s was updated", node)

	return nil
}

// replacedPods returns the number of pods that were replaced.
func replacedPods(before, after []corev1.Pod) (n int) {
	for _, p := range after {
		if !slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == p.UID }) {
			n++
		}
	}

	return n
}

func (t *central) phase(name string) {
	t.phases = append(t.phases, phase{name, time.Now()})
	t.step("%s", name)
}

// loseOne kills a member that leads neither database. The other two must serve a new pod meanwhile.
func (t *central) loseOne(ctx context.Context) error {
	lead, err := t.leaders(ctx)
	if err != nil {
		return err
	}

	pods, err := t.members(ctx)
	if err != nil {
		return err
	}

	for _, p := range pods {
		if !slices.Contains(lead, p.Name) {
			t.phase("one member killed: " + p.Name)
			return t.without(ctx, []corev1.Pod{p}, func() error { return t.waitServed(ctx, "a new pod without that member") })
		}
	}

	return fmt.Errorf("of %d members %v lead", len(pods), lead)
}

// loseLeader kills the leader of the Northbound database. If the Southbound database had another
// leader, it kills that one too, after the first is back. While a leader is dead, another member
// must lead and serve a new pod.
func (t *central) loseLeader(ctx context.Context) error {
	lead, err := t.leaders(ctx)
	if err != nil {
		return err
	}

	for _, name := range slices.Compact(lead) {
		pods, err := t.members(ctx)
		if err != nil {
			return err
		}

		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Name != name })

		t.phase("leader killed: " + name)

		err = t.without(ctx, pods, func() error {
			var now []string

			err := t.await(ctx, "another leader", func() (err error) { now, err = t.leaders(ctx); return err })
			if err != nil {
				return err
			}

			t.step("%s leads the Northbound and %s the Southbound database", now[0], now[1])

			return t.waitServed(ctx, "a new pod without the last leader")
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// loseAll kills all members. A new pod must wait for them.
func (t *central) loseAll(ctx context.Context) error {
	pods, err := t.members(ctx)
	if err != nil {
		return err
	}

	const wait = 15 * time.Second // a pod has its network after one or two seconds otherwise

	var waiting string

	t.phase("all members killed")

	err = t.without(ctx, pods, func() error {
		if waiting, err = t.probe(ctx); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}

		p, err := t.client.CoreV1().Pods(flowsNamespace).Get(ctx, waiting, metav1.GetOptions{})
		if err != nil {
			return err
		}

		if p.Spec.NodeName == "" || p.Status.PodIP != "" || p.Status.Phase != corev1.PodPending {
			return fmt.Errorf("pod %s on %q is %s with address %q, and OVN's databases are down", p.Name, p.Spec.NodeName, p.Status.Phase, p.Status.PodIP)
		}

		return nil
	})
	if err != nil {
		return err
	}

	return t.answered(ctx, waiting, "the pod that waited")
}

// upgrade changes a setting of all programs, and adds the backups to the databases' pods.
func (t *central) upgrade(ctx context.Context) error {
	t.phase("helm upgrade")

	return t.replaced(ctx, func() error {
		return t.helm(ctx, "upgrade", "ovn-ebpf", t.chart(), "-n", "ovn-ebpf", "--reset-then-reuse-values",
			"--set", "config.LOG_LEVEL=5", "--set-string", "ovn.backup.schedule=30 2 * * *")
	})
}

func (t *central) rollback(ctx context.Context) error {
	t.phase("helm rollback")
	return t.replaced(ctx, func() error { return t.helm(ctx, "rollback", "ovn-ebpf", "-n", "ovn-ebpf") })
}

// rolledOut are what a changed setting and the backups replace the pods of.
var rolledOut = []string{"statefulset/ovn-ebpf-central", "deployment/ovn-ebpf-controller", "daemonset/ovn-ebpf-node"}

// replaced changes the release and waits until that has replaced the pods of rolledOut and a new
// pod is served.
func (t *central) replaced(ctx context.Context, change func() error) error {
	before, err := t.pods(ctx)
	if err != nil {
		return err
	}

	if err := change(); err != nil {
		return err
	}

	for _, what := range rolledOut {
		if _, err := t.kubectl(ctx, nil, "-n", "ovn-ebpf", "rollout", "status", what, "--timeout=10m"); err != nil {
			return err
		}

		t.step("%s is rolled out", what)
	}

	after, err := t.pods(ctx)
	if err != nil {
		return err
	}

	for _, what := range rolledOut {
		_, app, _ := strings.Cut(what, "/")
		for _, p := range after[app] {
			if slices.ContainsFunc(before[app], func(old corev1.Pod) bool { return old.UID == p.UID }) {
				return fmt.Errorf("pod %s is the one of before", p.Name)
			}
		}

		if len(after[app]) == 0 || len(after[app]) != len(before[app]) {
			return fmt.Errorf("%s has %d pods, before %d", what, len(after[app]), len(before[app]))
		}
	}

	if err := t.awaitReady(ctx); err != nil {
		return err
	}

	return t.waitServed(ctx, "a new pod")
}

// restore changes OVN's databases behind the controller's back and restores a backup of before. The
// controller is stopped, for it would repair them.
func (t *central) restore(ctx context.Context) error {
	t.phase("restore")

	if err := t.scale(ctx, 0); err != nil {
		return err
	}

	before, err := t.dump(ctx)
	if err != nil {
		return err
	}

	out, err := t.typing.chapter(ctx, backingUp)
	if err != nil {
		return err
	}

	lines := strings.Fields(out)
	made := lines[len(lines)-1]

	if err := t.damage(ctx); err != nil {
		return err
	}

	damaged, err := t.dump(ctx)
	if err != nil {
		return err
	}

	if slices.Equal(damaged[northbound.name], before[northbound.name]) {
		return errors.New("the Northbound database has not changed")
	}

	if _, err := t.typing.chapter(ctx, restoring, sampleBackup, made); err != nil {
		return err
	}

	for _, d := range []database{northbound, southbound} {
		err := t.await(ctx, "the rows of before in "+d.name, func() error {
			after, err := t.dumpOf(ctx, d)
			if err != nil {
				return err
			}

			return equalRows(before[d.name], after)
		})
		if err != nil {
			return err
		}

		t.step("%s has the %d rows of before again", d.name, len(before[d.name]))
	}

	if err := t.scale(ctx, 1); err != nil {
		return err
	}

	return t.waitServed(ctx, "a new pod after the restore")
}

// sampleBackup is the backup in docs/install.md.
const sampleBackup = "/backup/2026-11-25T02-30-00Z"

// damage deletes the load balancers of Service kube-dns and adds a switch. No flow uses either.
func (t *central) damage(ctx context.Context) error {
	pod, err := t.leader(ctx, northbound)
	if err != nil {
		return err
	}

	transact := func(operations string) ([]byte, error) {
		return t.inside(ctx, pod, northbound, "ovsdb-client", "--timeout=30", "transact", socket(northbound), `["OVN_Northbound",`+operations+"]")
	}

	out, err := transact(`{"op":"select","table":"Load_Balancer","where":[],"columns":["name"]}`)
	if err != nil {
		return err
	}

	names := regexp.MustCompile(`Service_kube-system/kube-dns_[^"]*`).FindAllString(string(out), -1)
	if len(names) == 0 {
		return fmt.Errorf("no load balancer of kube-dns: %s", out)
	}

	operations := `{"op":"insert","table":"Logical_Switch","row":{"name":"foreign"}}`
	for _, name := range names {
		operations += fmt.Sprintf(`,{"op":"delete","table":"Load_Balancer","where":[["name","==",%q]]}`, name)
	}

	_, err = transact(operations)

	return err
}

func socket(d database) string { return "unix:/run/ovn/" + d.file + ".sock" }

// inside runs a command in a database's container.
func (t *central) inside(ctx context.Context, pod string, d database, argv ...string) ([]byte, error) {
	return t.kubectl(ctx, nil, append([]string{"-n", "ovn-ebpf", "exec", pod, "-c", d.container, "--"}, argv...)...)
}

// leaders returns the pods that lead the Northbound and the Southbound database.
func (t *central) leaders(ctx context.Context) ([]string, error) {
	nb, err := t.leader(ctx, northbound)
	if err != nil {
		return nil, err
	}

	sb, err := t.leader(ctx, southbound)

	return []string{nb, sb}, err
}

// leader returns the pod that leads a database. Members that do not answer do not lead.
func (t *central) leader(ctx context.Context, d database) (string, error) {
	pods, err := t.members(ctx)
	if err != nil {
		return "", err
	}

	var errs []error

	for i := range pods {
		out, err := t.inside(ctx, pods[i].Name, d, "ovn-appctl", "--timeout=5", "-t", "/run/ovn/"+d.file+".ctl", "cluster/status", d.name)
		if err == nil && bytes.Contains(out, []byte("\nRole: leader\n")) {
			return pods[i].Name, nil
		}

		errs = append(errs, err)
	}

	return "", fmt.Errorf("%s has no leader: %w", d.name, errors.Join(errs...))
}

// members returns the pods of OVN's databases by name.
func (t *central) members(ctx context.Context) ([]corev1.Pod, error) {
	all, err := t.pods(ctx)
	if err != nil {
		return nil, err
	}

	pods := all["ovn-ebpf-central"]
	if len(pods) != t.opts.Members {
		return nil, fmt.Errorf("%d pods of OVN's databases", len(pods))
	}

	return pods, nil
}

// pods returns the network's pods by app, ordered by name, without those that end.
func (t *central) pods(ctx context.Context) (map[string][]corev1.Pod, error) {
	list, err := t.client.CoreV1().Pods("ovn-ebpf").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}

	out := map[string][]corev1.Pod{}

	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			out[p.Labels["app"]] = append(out[p.Labels["app"]], p)
		}
	}

	return out, nil
}

// without keeps the members' daemons dead while the function runs, and waits until they are back.
func (t *central) without(ctx context.Context, pods []corev1.Pod, during func() error) error {
	release, err := keepDead(ctx, pods)
	if err != nil {
		return err
	}

	err = during()

	killed, failed := release()
	if err := errors.Join(err, failed); err != nil {
		return err
	}

	began := time.Now()

	if err := t.awaitReady(ctx); err != nil {
		return err
	}

	t.step("%d processes of %d members were killed; all members were ready again %.0f s later", killed, len(pods), time.Since(began).Seconds())

	return nil
}

// probe creates a pod that asks the server once, and returns its name.
func (t *central) probe(ctx context.Context) (string, error) {
	t.probes++
	name := fmt.Sprintf("probe%d", t.probes)
	node := t.lab.Node(1 + t.probes%t.opts.Nodes)

	return name, t.trafficPod(ctx, name, node, "tcp", t.servers.pod4.String(), "-timeout", flowsPatience.String())
}

// waitServed creates a pod and waits until the server has answered it.
func (t *central) waitServed(ctx context.Context, what string) error {
	name, err := t.probe(ctx)
	if err != nil {
		return err
	}

	return t.answered(ctx, name, what)
}

func (t *central) answered(ctx context.Context, pod, what string) error {
	began := time.Now()

	is, out, err := t.ended(ctx, pod)
	if err == nil && (is != corev1.PodSucceeded || !strings.HasPrefix(string(out), flowsServer+" ")) {
		err = fmt.Errorf("pod %s has %s: %q", pod, is, out)
	}

	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}

	t.step("%s was answered after %.1f s", what, time.Since(began).Seconds())

	return nil
}

// scale sets the number of controllers and waits for it.
func (t *central) scale(ctx context.Context, replicas int) error {
	if _, err := t.kubectl(ctx, nil, "-n", "ovn-ebpf", "scale", "deployment/ovn-ebpf-controller", fmt.Sprintf("--replicas=%d", replicas)); err != nil {
		return err
	}

	return t.await(ctx, fmt.Sprintf("%d controllers", replicas), func() error {
		list, err := t.client.CoreV1().Pods("ovn-ebpf").List(ctx, metav1.ListOptions{LabelSelector: "app=ovn-ebpf-controller"})
		if err != nil {
			return err
		}

		if len(list.Items) != replicas {
			return fmt.Errorf("%d pods", len(list.Items))
		}

		for i := range list.Items {
			if err := unready(&list.Items[i]); err != nil {
				return err
			}
		}

		return nil
	})
}

// removeFlows deletes all pods of flows and probes, as required before an uninstallation.
func (t *central) removeFlows(ctx context.Context) error {
	namespaces := t.client.CoreV1().Namespaces()
	if err := namespaces.Delete(ctx, flowsNamespace, metav1.DeleteOptions{}); err != nil {
		return err
	}

	return t.await(ctx, "namespace "+flowsNamespace+" to be gone", func() error {
		_, err := namespaces.Get(ctx, flowsNamespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(err, errors.New("the namespace still exists"))
	})
}
