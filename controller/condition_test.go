package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb/nbtest"
)

// TestNetworkUnavailableIsCleared: a cloud creates a Node with the condition NetworkUnavailable,
// and sets it again later. The controller clears it when the agent has said what the node's rows
// need, and leaves other conditions alone.
func TestNetworkUnavailableIsCleared(t *testing.T) {
	w := newWorld(t)
	w.run(t, "one").waitReady()
	nodes := w.client.CoreV1().Nodes()
	patch := func(name, body string, subresource ...string) {
		t.Helper()

		if _, err := nodes.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subresource...); err != nil {
			t.Fatal(err)
		}
	}
	unavailable := func(name string) {
		t.Helper()
		patch(name, `{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"NetworkUnavailable","status":"True","reason":"NoRouteCreated"}]}}`, "status")
	}
	condition := func(name string, of corev1.NodeConditionType) corev1.NodeCondition {
		n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == of })
		if i < 0 {
			return corev1.NodeCondition{}
		}

		return n.Status.Conditions[i]
	}

	cleared := func(name string) {
		t.Helper()
		nbtest.Eventually(t, name+" is available", func() bool {
			c := condition(name, corev1.NodeNetworkUnavailable)
			return c.Status == corev1.ConditionFalse && c.Reason == "NetworkReady" && !c.LastTransitionTime.IsZero()
		})

		if c := condition(name, corev1.NodeReady); c.Status != corev1.ConditionTrue {
			t.Errorf("condition Ready of %s is now %+v", name, c)
		}
	}
	for _, name := range []string{"bare", "node1"} { // no agent yet
		if _, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}

		unavailable(name)
	}

	w.createNode(2)
	unavailable("node2")
	cleared("node2")
	unavailable("node2")
	cleared("node2")

	if err := nodes.Delete(t.Context(), "node1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	w.createNode(1) // its agent has come
	unavailable("node1")
	cleared("node1")

	if c := condition("bare", corev1.NodeNetworkUnavailable); c.Status != corev1.ConditionTrue {
		t.Errorf("a node without an agent: %+v", c)
	}
}

// TestClonedSystemID: two nodes have the same system-id. The one whose rows have it keeps it, or
// else the older one. The other gets no router, and an annotation names the holder. It gets the chassis when
// the other node is gone.
func TestClonedSystemID(t *testing.T) {
	w := newWorld(t)
	nodes := w.client.CoreV1().Nodes()
	annotate := func(name, key, value string) {
		t.Helper()

		body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
		if _, err := nodes.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	takenBy := func(name string) string {
		n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}

		return n.Annotations[annotation.ChassisTakenBy]
	}
	hasRouter := func(name, chassis string) bool {
		return w.holds("logical_router", "GR_"+name, "options", "chassis="+chassis)
	}

	for i := range 3 {
		w.createNode(i + 1)
	}

	time.Sleep(1100 * time.Millisecond) // the API server's times have seconds: the next one is younger
	w.createNode(4)
	annotate("node4", annotation.ChassisID, "node3")
	w.run(t, "one").waitReady()
	nbtest.Eventually(t, "the older node keeps it", func() bool {
		return hasRouter("node3", "node3") && takenBy("node4") == "node3" && !hasRouter("node4", "")
	})

	annotate("node1", annotation.ChassisID, "node2")
	nbtest.Eventually(t, "the node whose rows have it keeps it", func() bool {
		return takenBy("node1") == "node2" && !hasRouter("node1", "") && hasRouter("node2", "node2")
	})

	if by := takenBy("node2"); by != "" {
		t.Errorf("node2's is taken by %q", by)
	}

	nbtest.Eventually(t, "an event names both", func() bool {
		events, err := w.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ChassisTaken,involvedObject.name=node1"})
		return err == nil && len(events.Items) > 0 && strings.Contains(events.Items[0].Message, "node node1 has the system-id") && strings.Contains(events.Items[0].Message, "of node node2")
	})
	annotate("node1", annotation.ChassisID, "own")
	nbtest.Eventually(t, "another system-id", func() bool { return takenBy("node1") == "" && hasRouter("node1", "own") })
	annotate("node1", annotation.ChassisID, "node2")
	nbtest.Eventually(t, "again", func() bool { return takenBy("node1") == "node2" })

	if err := nodes.Delete(t.Context(), "node2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	nbtest.Eventually(t, "the other is gone", func() bool { return takenBy("node1") == "" && hasRouter("node1", "node2") })
}
