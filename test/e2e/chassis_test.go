package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// systemID returns a node's system-id in OVS.
func (c *Cluster) systemID(t *testing.T, i int) string {
	t.Helper()
	n := c.Node(i)
	out := c.execute(t, n.Name, "ovs-vsctl", "--db="+n.OVSDB, "get", "Open_vSwitch", ".", "external_ids:system-id")
	return strings.Trim(strings.TrimSpace(out), `"`)
}

func (c *Cluster) setSystemID(t *testing.T, i int, id string) {
	t.Helper()
	n := c.Node(i)
	c.execute(t, n.Name, "ovs-vsctl", "--db="+n.OVSDB, "set", "Open_vSwitch", ".", "external_ids:system-id="+id)
}

// chassis returns the names of all chassis in the Southbound database.
func (c *Cluster) chassis(t *testing.T) []string {
	t.Helper()
	out := c.execute(t, "central", "ovn-sbctl", "--bare", "--columns=name", "list", "Chassis")
	return strings.Fields(out)
}

// testSystemID: the system-id of a node's Open vSwitch changes, while everything runs, and by a new
// installation while neither agent nor ovn-controller run. Then the former chassis keeps the tunnel
// address that the new one needs. Pods, old and new, reach pods of other nodes and the outside.
func testSystemID(t *testing.T, c *Cluster) {
	first := c.systemID(t, 1)
	was := first
	for _, running := range []bool{true, false} {
		id := fmt.Sprintf("another-%t", running)
		if running {
			c.setSystemID(t, 1, id)
		} else {
			c.killAgent(t, 1)
			again, err := c.Kill("node1-ovn-controller")
			if err != nil {
				t.Fatal(err)
			}
			c.setSystemID(t, 1, id)
			if err := again(); err != nil {
				t.Fatal(err)
			}
			c.startAgent(t, 1)
		}
		c.isChassis(t, id, was)
		was = id
	}
	c.setSystemID(t, 1, first)
	c.isChassis(t, first, was)
}

// testReinstalled: Open vSwitch of node1 is removed and installed again under a running agent. Its
// database is empty then, and it has a system-id of its own. Nothing is restarted by hand.
func testReinstalled(t *testing.T, c *Cluster) {
	const id = "2c9f2d3e-reinstalled"
	was := c.systemID(t, 1)
	if err := c.Reinstall(t.Context(), 1, id); err != nil {
		t.Fatal(err)
	}
	bothFamilies(t, func(t *testing.T, v6 bool) {
		within(t, "ssh to the host", func() error { return c.ask(t, "ext", port(c.node(1)(v6), sshPort)) })
	})
	c.isChassis(t, id, was)
	c.hasFault(t, 1, "system-id", false)
}

// isChassis waits until node1's chassis has the name id, and no other. Then it checks traffic.
func (c *Cluster) isChassis(t *testing.T, id, former string) {
	t.Helper()
	within(t, "chassis "+id, func() error {
		if said := nodeAnnotations(t, c.Lab, "node1")[annotation.ChassisID]; said != id {
			return fmt.Errorf("annotation %s", said)
		}
		if names := c.chassis(t); !slices.Contains(names, id) || slices.Contains(names, former) {
			return fmt.Errorf("chassis %v", names)
		}
		return nil
	})
	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := c.addPod(t.Context(), "new", "node1"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.DelPod(t.Context(), c.Pods["new"]); err != nil {
			t.Error(err)
		}
		delete(c.Pods, "new")
	}()
	for _, pod := range []string{"a", "new"} {
		bothFamilies(t, func(t *testing.T, v6 bool) {
			within(t, pod+" reaches a pod of the other node and the outside", func() error {
				return errors.Join(c.ask(t, host(pod), port(c.pod("c")(v6), podPort)), c.ask(t, host(pod), port(outside(v6), outsidePort)))
			})
			within(t, "a pod of the other node reaches "+pod, func() error { return c.ask(t, host("c"), port(c.pod(pod)(v6), podPort)) })
		})
	}
}

// testClonedSystemID: node2 gets the system-id of node1, as a machine does that is copied from the
// same image. Node1 keeps it and its traffic. Node2 says who has it, also after a restart of its
// agent, and works again when it gets another one.
func testClonedSystemID(t *testing.T, c *Cluster) {
	id, own := c.systemID(t, 1), c.systemID(t, 2)
	defer c.setSystemID(t, 2, own)
	before := c.nodeEvents(t, "node2", "ChassisTaken")
	var live []*background
	for _, v6 := range []bool{false, true} {
		live = append(live, c.hold(t, "a pod of node1 to outside", host("a"), port(outside(v6), outsidePort), time.Hour))
		c.isConnected(t, live[len(live)-1], host("a"), port(outside(v6), outsidePort))
	}
	says := fmt.Sprintf("node node2 has the system-id %q of node node1, which keeps it", id)
	c.setSystemID(t, 2, id)
	c.refused(t, says)
	c.awaitNodeEvent(t, "node2", "ChassisTaken", says, before)
	within(t, "node1 keeps its chassis", func() error {
		if out := c.execute(t, "central", "ovn-sbctl", "--bare", "--columns=hostname", "find", "Chassis", "name="+id); strings.TrimSpace(out) != "node1" {
			return fmt.Errorf("chassis %s is of %q", id, out)
		}
		return nil
	})
	c.killAgent(t, 2)
	c.startAgent(t, 2)
	c.refused(t, says)
	c.hasFault(t, 1, "system-id", false)
	for _, v6 := range []bool{false, true} {
		for range 10 {
			if err := c.ask(t, host("a"), port(outside(v6), outsidePort)); err != nil {
				t.Errorf("node1's pod to outside: %v", err)
			}
		}
	}
	for _, l := range live {
		l.stop(t)
		l.held(t)
	}
	c.setSystemID(t, 2, own)
	if err := c.AwaitAgent(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		within(t, "traffic of node2", func() error {
			return errors.Join(c.ask(t, host("c"), port(outside(v6), outsidePort)), c.ask(t, host("a"), port(c.pod("c")(v6), podPort)), c.ask(t, host("c"), port(c.pod("a")(v6), podPort)))
		})
	}
	c.hasFault(t, 2, "system-id", false)
}

// refused waits until node2 is not ready for the reason, ovnkube status says it too, and the node
// has no Southbound database.
func (c *Cluster) refused(t *testing.T, reason string) {
	t.Helper()
	c.hasFault(t, 2, reason, true)
	n := c.Node(2)
	within(t, "node2 leaves the Southbound database", func() error {
		out := c.execute(t, n.Name, "ovs-vsctl", "--db="+n.OVSDB, "get", "Open_vSwitch", ".", "external_ids")
		if strings.Contains(out, "ovn-remote=") || nodeAnnotations(t, c.Lab, n.Name)[annotation.ChassisTakenBy] != "node1" {
			return fmt.Errorf("external_ids %s, annotations %v", out, nodeAnnotations(t, c.Lab, n.Name))
		}
		code, _, err := c.readyz(n.Name)
		if err == nil && code == http.StatusOK {
			err = errors.New("node2 is ready")
		}
		return err
	})
}

// testNetworkUnavailable: a cloud's controller sets the condition NetworkUnavailable, so that no
// pod is scheduled to the node. The controller clears it, and the node's pods keep their traffic.
func testNetworkUnavailable(t *testing.T, c *Cluster) {
	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}
	body := `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"True","reason":"NoRouteCreated"}]}}`
	if _, err := client.CoreV1().Nodes().Patch(t.Context(), "node1", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	within(t, "the condition is cleared", func() error {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status := map[corev1.NodeConditionType]corev1.ConditionStatus{}
		for _, condition := range n.Status.Conditions {
			status[condition.Type] = condition.Status
		}
		if status[corev1.NodeNetworkUnavailable] != corev1.ConditionFalse || status[corev1.NodeReady] != corev1.ConditionTrue {
			return fmt.Errorf("conditions %v", status)
		}
		return nil
	})
	if err := c.northSouth(t)(); err != nil {
		t.Error(err)
	}
}

// testChassisLost: node1's ovn-controller ends and its chassis is gone from the Southbound
// database. Node1 says so until it is there again.
func testChassisLost(t *testing.T, c *Cluster) {
	id := c.systemID(t, 1)
	before := c.nodeEvents(t, "node1", "ChassisDiffers")
	again, err := c.Kill("node1-ovn-controller")
	if err != nil {
		t.Fatal(err)
	}
	c.execute(t, "central", "ovn-sbctl", "chassis-del", id)
	fault := fmt.Sprintf("chassis %q of node node1 is not in the Southbound database", id)
	c.hasFault(t, 1, fault, true)
	c.awaitNodeEvent(t, "node1", "ChassisDiffers", fault, before)
	if err := again(); err != nil {
		t.Fatal(err)
	}
	c.hasFault(t, 1, fault, false)
	within(t, "pod to outside", c.northSouth(t))
}
