package e2e

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// testNestedLastPort: a pod without a free port is refused until another pod goes. It then gets that
// port at once.
func testNestedLastPort(t *testing.T, n *nested) {
	vm, full := n.VM(2), fmt.Sprintf("no free port on node vm2: %d of %[1]d used", poolPorts)
	replicas := n.fill(t, "vm2", "fill", poolPorts)
	n.create(t, "extra", "vm2")
	n.awaitRefused(t, "extra", full)

	t.Run("code", func(t *testing.T) {
		pod, err := n.get(t, "extra")
		if err != nil {
			t.Fatal(err)
		}

		var refused *cnitypes.Error

		err = n.CallPlugin(t.Context(), "ADD", n.Sandbox(pod))

		isCode := errors.As(err, &refused) && refused.Code == cnitypes.ErrTryAgainLater
		if !isCode || !strings.Contains(refused.Msg, full) {
			t.Errorf("ADD: %v, want code %d and %q", err, cnitypes.ErrTryAgainLater, full)
		}
	})

	const early = "ovnkube_underlay_reused_early_total"

	before := n.metric(t, vm, early)
	n.scale(t, "fill", replicas-1)
	n.awaitPod(t, "extra")

	if got := n.metric(t, vm, early) - before; got != 1 {
		t.Errorf("%d ports were reused early, want 1", got)
	}

	t.Run("two pods at once", func(t *testing.T) {
		n.fill(t, "vm2", "fill", poolPorts-1)

		twins := []string{"twin1", "twin2"}
		for _, name := range twins {
			n.create(t, name, "vm2")
		}

		within(t, "one of two pods runs", func() error { return n.oneRuns(t, twins, full) })
		n.deletePods(t, twins...)
	})
	n.deletePods(t, "extra")
}

// oneRuns returns an error unless one of two pods runs and the other is refused with the text.
func (n *nested) oneRuns(t *testing.T, twins []string, text string) error {
	running, refused := 0, 0

	for _, name := range twins {
		pod, err := n.get(t, name)
		if err != nil {
			return err
		}

		if pod.Status.Phase == corev1.PodRunning {
			running++
		}

		if strings.Contains(waiting(pod), text) {
			refused++
		}
	}

	if running != 1 || refused != 1 {
		return fmt.Errorf("%d run and %d are refused", running, refused)
	}

	return nil
}

// testNestedHeld: a pod keeps a port that the controller holds. Afterwards no pod gets it.
func testNestedHeld(t *testing.T, n *nested) {
	n.startPods(t, map[string]string{"holder": "vm2"})
	tag := n.portOf(t, "vm2", "holder").tag
	n.holdPorts(t, "vm2", tag)
	n.awaitState(t, "vm2", tag, "used, held")
	n.talks(t, "holder", append(n.hosts(), n.podEnd("c")))

	n.deletePods(t, "holder")
	n.awaitState(t, "vm2", tag, "held")
	n.fill(t, "vm2", "fill", poolPorts-1)
	n.create(t, "heir", "vm2")

	full := fmt.Sprintf("no free port on node vm2: %d of %d used, 1 held", poolPorts-1, poolPorts)
	n.awaitRefused(t, "heir", full)

	n.holdPorts(t, "vm2")
	n.awaitPod(t, "heir")

	if got := n.portOf(t, "vm2", "heir").tag; got != tag {
		t.Errorf("pod heir has tag %s, want %s, which was the last free one", got, tag)
	}

	n.deletePods(t, "heir")
	n.scale(t, "fill", 0)
}

// testNestedBadPool: the last valid pool stays while the ConfigMap cannot be used, and one Event is
// written about each fault.
func testNestedBadPool(t *testing.T, n *nested) {
	var before map[string]string

	n.changePool(t, "vm2", func(data map[string]string) { before = maps.Clone(data) })
	restore := func(data map[string]string) { maps.Copy(data, before) }
	faults := []struct {
		name, text string
		change     func(map[string]string)
	}{
		{"bad line", "line 3: mac: ", func(data map[string]string) {
			lines := slices.Collect(strings.Lines(data[annotation.PoolPorts]))
			fields := strings.Fields(lines[2])
			fields[2] = "fa:16:3e"
			lines[2] = strings.Join(fields, " ") + "\n"
			data[annotation.PoolPorts] = strings.Join(lines, "")
		}},
		{"other node", "node: it is the pool of node vm1", func(data map[string]string) {
			data[annotation.PoolNode] = strings.Replace(data[annotation.PoolNode], `"vm2"`, `"vm1"`, 1)
		}},
	}

	for i, f := range faults {
		n.changePool(t, "vm2", func(data map[string]string) {
			restore(data)
			f.change(data)
		})
		n.awaitReadyz(t, f.text)
		n.touchPool(t, "vm2", 3)
		n.startPods(t, map[string]string{fmt.Sprint("faulty", i): "vm2"})
	}

	n.changePool(t, "vm2", restore)
	n.awaitReadyz(t, "")

	for _, f := range faults {
		if got := n.poolEvents(t, f.text); got != 1 {
			t.Errorf("%s: %d events, want 1", f.name, got)
		}
	}

	t.Run("empty fields", func(t *testing.T) { n.keepsWhatIsKnown(t) })
	n.changePool(t, "vm2", restore)
	n.deletePods(t, "faulty0", "faulty1", "known")
}

// keepsWhatIsKnown checks that a pool without VIF, trunk, network, gateways and MTU changes nothing.
func (n *nested) keepsWhatIsKnown(t *testing.T) {
	tag := ""

	for _, l := range n.pool(t, "vm2") {
		if l.pod == "-" {
			tag = l.tag
		}
	}

	n.changePool(t, "vm2", func(data map[string]string) {
		markHeld(t, data, tag) // shows that the agent has the change
		data[annotation.PoolNode] = annotation.FormatPool(annotation.Pool{Cluster: "lab", Node: "vm2"})
	})
	n.awaitState(t, "vm2", tag, "held")

	n.startPods(t, map[string]string{"known": "vm2"})
	address := n.sandbox("known").IP4().String()

	mtu := "ip -o link show eth0 | grep -o 'mtu [0-9]*'"
	for _, command := range []string{"ip route", "ip neigh show nud permanent", mtu} {
		argv := []string{"sh", "-c", command}

		old, now := n.execute(t, host("c"), argv...), n.execute(t, host("known"), argv...)
		if now = strings.ReplaceAll(now, address, n.sandbox("c").IP4().String()); now != old {
			t.Errorf("%s: %q, was %q", command, now, old)
		}
	}

	n.talks(t, "known", append(n.hosts(), n.podEnd("c")))
	n.awaitReadyz(t, "")
}

// awaitReadyz waits until the answer of vm2's ready agent has the text, or with "", no fault at all.
func (n *nested) awaitReadyz(t *testing.T, text string) {
	t.Helper()
	within(t, "readyz", func() error {
		body := n.readyz(t, n.VM(2))
		if text == "" && body != "ok\n" || !strings.Contains(body, text) {
			return fmt.Errorf("it is %q, want %q", body, text)
		}

		return nil
	})
}

// touchPool changes the ConfigMap of a node, but not its data.
func (n *nested) touchPool(t *testing.T, node string, times int) {
	t.Helper()

	pools := n.client.CoreV1().ConfigMaps(annotation.PoolNamespace)
	for i := range times {
		object, err := pools.Get(t.Context(), annotation.PoolPrefix+node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		object.Annotations = map[string]string{"touched": fmt.Sprint(i)}
		if _, err := pools.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// poolEvents returns the number of Events PoolInvalid about Node vm2 with the text.
func (n *nested) poolEvents(t *testing.T, text string) (count int) {
	t.Helper()

	events, err := n.client.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=vm2,reason=PoolInvalid",
	})
	if err != nil {
		t.Fatal(err)
	}

	for _, e := range events.Items {
		if strings.Contains(e.Message, text) {
			count += int(e.Count)
		}
	}

	return count
}
