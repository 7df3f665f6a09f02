package e2e

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/ovn-ebpf/ovn-ebpf/bpf"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// poolPorts is the number of nested ports of each VM in the lab.
const poolPorts = 13

// nested is a lab in underlay mode: its nodes are VMs, and stand-in kubelets run the pods.
type nested struct {
	*Cluster
	client *kubernetes.Clientset

	mu   sync.Mutex          // guards pods
	pods map[string]*lab.Pod // of awaitPod
}

// startNested brings the lab up with pods a and b on vm1, c on vm2, and a server on every host.
func startNested(t *testing.T) *nested {
	t.Helper()
	o := labOptions(t, lab.Options{Nodes: 2, VMs: 2, Pods: true})
	o.AgentArgs, o.Uplink = nil, "" // those of gateways

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)

	client, err := l.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	c := &Cluster{Lab: l, dir: o.Dir, bin: o.BinDir}
	c.tool = trafficTool(c)
	n := &nested{Cluster: c, client: client, pods: map[string]*lab.Pod{}}

	for _, on := range []string{"vm1", "vm2", "plain", "ext"} {
		if err := n.serve(t.Context(), on, on, podPort); err != nil {
			t.Fatal(err)
		}
	}

	n.startPods(t, map[string]string{"a": "vm1", "b": "vm1", "c": "vm2"})

	for _, pod := range []string{"a", "b", "c"} {
		// The kernel announces its IPv6 addresses at any time, which counts.
		n.execute(t, host(pod), "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6")
	}

	return n
}

// create creates a pod that is bound to a node and runs the lab's server.
func (n *nested) create(t *testing.T, name, node string) {
	t.Helper()

	no, now := false, int64(0)
	address := fmt.Sprintf(":%d", podPort)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &now,
			Containers: []corev1.Container{{
				Name: "server", Image: "none",
				Command: n.traffic("serve", "-name", name, "-tcp", address, "-udp", address),
			}},
		},
	}

	pods := n.client.CoreV1().Pods(metav1.NamespaceDefault)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// startPods creates pods, by the names of their nodes, and waits until their servers listen.
func (n *nested) startPods(t *testing.T, nodes map[string]string) {
	t.Helper()

	for name, node := range nodes {
		n.create(t, name, node)
	}

	for name := range nodes {
		n.awaitPod(t, name)
	}
}

// awaitPod waits until a pod runs and its server listens.
func (n *nested) awaitPod(t *testing.T, name string) {
	t.Helper()
	within(t, "pod "+name, func() error {
		pod, err := n.get(t, name)
		if err != nil {
			return err
		}

		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("%s: %s", pod.Status.Phase, waiting(pod))
		}

		n.mu.Lock()
		n.pods[name] = n.Sandbox(pod)
		n.mu.Unlock()

		return n.ask(t, host(name), port(n.sandbox(name).IP4(), podPort))
	})
}

// sandbox returns a pod that runs, or ran last.
func (n *nested) sandbox(name string) *lab.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.pods[name]
}

func (n *nested) get(t *testing.T, name string) (*corev1.Pod, error) {
	return n.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
}

// waiting returns why the pod's container does not run.
func waiting(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			return s.State.Waiting.Message
		}
	}

	return ""
}

// awaitRefused waits until the status of a pod has the text.
func (n *nested) awaitRefused(t *testing.T, name, text string) {
	t.Helper()
	within(t, "refused pod "+name, func() error {
		pod, err := n.get(t, name)
		if err == nil && !strings.Contains(waiting(pod), text) {
			err = fmt.Errorf("%s: %q, want %q", pod.Status.Phase, waiting(pod), text)
		}

		return err
	})
}

// deletePods deletes pods and waits until nothing of them is left.
func (n *nested) deletePods(t *testing.T, names ...string) {
	t.Helper()

	pods := n.client.CoreV1().Pods(metav1.NamespaceDefault)
	for _, name := range names {
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range names {
		within(t, "end of pod "+name, func() error {
			_, err := n.get(t, name)
			if err == nil {
				return errors.New("it still exists")
			}

			if apierrors.IsNotFound(err) {
				return nil
			}

			return err
		})
	}
}

// deploy creates a Deployment on a node, without pods.
func (n *nested) deploy(t *testing.T, name, node string) {
	t.Helper()

	no, now, none := false, int64(0), int32(0)
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector:                 map[string]string{corev1.LabelHostname: node},
					AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &now,
					Containers: []corev1.Container{{Name: "server", Image: "none"}},
				},
			},
		},
	}

	deployments := n.client.AppsV1().Deployments(metav1.NamespaceDefault)
	if _, err := deployments.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// scale sets the number of a Deployment's pods and does not wait for them.
func (n *nested) scale(t *testing.T, name string, replicas int) {
	t.Helper()

	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	deployments := n.client.AppsV1().Deployments(metav1.NamespaceDefault)

	_, err := deployments.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// poolLine is a line of the table of `ovnkube underlay pool`.
type poolLine struct{ tag, addresses, mac, state, pod, port string }

var poolColumns = regexp.MustCompile(`\s{2,}`)

// pool returns the table of `ovnkube underlay pool` on a VM.
func (n *nested) pool(t *testing.T, vm string) []poolLine {
	t.Helper()

	out, err := n.Typed(t.Context(), vm, "ovnkube", "underlay", "pool")
	if err != nil {
		t.Fatal(err)
	}

	var lines []poolLine

	for line := range strings.Lines(out) {
		f := poolColumns.Split(strings.TrimSpace(line), -1)
		if len(f) == 6 && f[0] != "TAG" {
			lines = append(lines, poolLine{f[0], f[1], f[2], f[3], f[4], f[5]})
		}
	}

	if len(lines) != poolPorts {
		t.Fatalf("pool of %s has %d ports, want %d:\n%s", vm, len(lines), poolPorts, out)
	}

	return lines
}

// portOf returns the line of a pod's port.
func (n *nested) portOf(t *testing.T, vm, pod string) poolLine {
	t.Helper()
	lines := n.pool(t, vm)

	i := slices.IndexFunc(lines, func(l poolLine) bool { return l.pod == "default/"+pod })
	if i < 0 {
		t.Fatalf("pod %s has no port in %v", pod, lines)
	}

	return lines[i]
}

// awaitState waits until a port of a VM has the state.
func (n *nested) awaitState(t *testing.T, vm, tag, state string) {
	t.Helper()
	within(t, "port "+tag+" of "+vm, func() error {
		for _, l := range n.pool(t, vm) {
			// The time that is left follows "resting".
			if first, _, _ := strings.Cut(l.state, " "); l.tag == tag && l.state != state && first != state {
				return fmt.Errorf("it is %s, want %s", l.state, state)
			}
		}

		return nil
	})
}

// used returns the number of ports that pods have on a VM.
func (n *nested) used(t *testing.T, vm string) int {
	t.Helper()

	used := 0

	for _, l := range n.pool(t, vm) {
		if strings.HasPrefix(l.state, "used") { // or "used, held"
			used++
		}
	}

	return used
}

// fill scales a Deployment until so many ports of the VM are used. It returns the number of replicas.
func (n *nested) fill(t *testing.T, vm, deployment string, ports int) int {
	t.Helper()

	replicas := ports

	for _, l := range n.pool(t, vm) {
		if l.pod != "-" && !strings.HasPrefix(l.pod, "default/"+deployment+"-") {
			replicas--
		}
	}

	n.scale(t, deployment, replicas)
	n.awaitUsed(t, vm, ports)

	return replicas
}

func (n *nested) awaitUsed(t *testing.T, vm string, ports int) {
	t.Helper()
	within(t, "used ports of "+vm, func() error {
		if used := n.used(t, vm); used != ports {
			return fmt.Errorf("%d, want %d", used, ports)
		}

		return nil
	})
}

// changePool changes the data of a node's ConfigMap.
func (n *nested) changePool(t *testing.T, node string, change func(data map[string]string)) {
	t.Helper()

	pools := n.client.CoreV1().ConfigMaps(annotation.PoolNamespace)

	object, err := pools.Get(t.Context(), annotation.PoolPrefix+node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	change(object.Data)

	if _, err := pools.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// holdPorts marks exactly the ports with these tags as held.
func (n *nested) holdPorts(t *testing.T, node string, tags ...string) {
	t.Helper()
	n.changePool(t, node, func(data map[string]string) { markHeld(t, data, tags...) })
}

// markHeld is holdPorts for the data of a ConfigMap.
func markHeld(t *testing.T, data map[string]string, tags ...string) {
	t.Helper()

	ports, err := annotation.ParsePoolPorts(data[annotation.PoolPorts])
	if err != nil {
		t.Fatal(err)
	}

	for i, p := range ports {
		ports[i].Held = slices.Contains(tags, fmt.Sprint(p.Tag))
	}

	if data[annotation.PoolPorts], err = annotation.FormatPoolPorts(ports); err != nil {
		t.Fatal(err)
	}
}

// readyz returns the answer of a ready agent.
func (n *nested) readyz(t *testing.T, vm *lab.VM) string {
	t.Helper()

	client, err := n.Client(vm.Name)
	if err != nil {
		t.Fatal(err)
	}

	return fetch(t, client, strings.TrimSuffix(vm.MetricsURL, "/metrics")+"/readyz")
}

// metric returns the value of a metric of a VM's agent.
func (n *nested) metric(t *testing.T, vm *lab.VM, name string) uint64 {
	t.Helper()

	client, err := n.Client(vm.Name)
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(fetch(t, client, vm.MetricsURL)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return number(t, strings.TrimSpace(value))
		}
	}

	t.Fatalf("agent of %s has no metric %s", vm.Name, name)

	return 0
}

// moved calls run and returns by how much it has increased the counters of a VM, without those that are
// unchanged. A key is direction and reason.
func (n *nested) moved(t *testing.T, run func(), vms ...*lab.VM) []map[string]uint64 {
	t.Helper()

	var before []map[string]uint64
	for _, vm := range vms {
		before = append(before, counters(t, vm))
	}

	run()

	var out []map[string]uint64

	for i, vm := range vms {
		diff := map[string]uint64{}

		for key, packets := range counters(t, vm) {
			if packets != before[i][key] {
				diff[key] = packets - before[i][key]
			}
		}

		out = append(out, diff)
	}

	return out
}

func counters(t *testing.T, vm *lab.VM) map[string]uint64 {
	t.Helper()

	list, err := bpf.ReadNestedCounters(vm.PinDir)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string]uint64{}
	for _, c := range list {
		out[c.Direction+" "+c.Reason] = c.Packets
	}

	return out
}
