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

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
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

	for _, how := range []struct {
		id     string
		change func(t *testing.T, id string)
	}{
		{"another-running", func(t *testing.T, id string) { c.systemIDWhileRunning(t, id) }},
		{"another-stopped", func(t *testing.T, id string) { c.systemIDWhileStopped(t, id) }},
		{"another-absent", func(t *testing.T, id string) { c.systemIDWithoutController(t, id) }},
	} {
		if how.id == "another-absent" && testing.Short() {
			continue // the fault is reported after half a minute
		}

		how.change(t, how.id)
		c.isChassis(t, how.id, was)
		was = how.id
	}

	c.setSystemID(t, 1, first)
	c.isChassis(t, first, was)
}

// systemIDWhileRunning changes the system-id of node1. As long as the leader does not remove the
// former chassis, which may take a while, the node reports no fault.
func (c *Cluster) systemIDWhileRunning(t *testing.T, id string) {
	t.Helper()
	before := c.report(t)
	c.frozen(t, "controller", func() {
		c.setSystemID(t, 1, id)
		within(t, "the agent publishes the system-id", func() error {
			if said := nodeAnnotations(t, c.Lab, "node1")[annotation.ChassisID]; said != id {
				return fmt.Errorf("annotation %s", said)
			}

			return nil
		})
		c.reportsNothing(t, before)
	})
}

// during runs step while a fault lasts. fault begins it, and returns what ends it.
func during(t *testing.T, fault func() (end func() error, err error), step func()) {
	t.Helper()

	end, err := fault()
	if err != nil {
		t.Fatal(err)
	}

	defer func() { // also if step ends the test
		if err := end(); err != nil {
			t.Error(err)
		}
	}()

	step()
}

// frozen runs step while a process of the lab is stopped by SIGSTOP.
func (c *Cluster) frozen(t *testing.T, process string, step func()) {
	t.Helper()
	during(t, func() (func() error, error) { return c.Freeze(process) }, step)
}

// stopped runs step while a process of the lab does not run.
func (c *Cluster) stopped(t *testing.T, process string, step func()) {
	t.Helper()
	during(t, func() (func() error, error) { return c.Kill(process) }, step)
}

// systemIDWhileStopped changes the system-id of node1 while neither agent nor ovn-controller run,
// and starts them. Meanwhile ovnkube status names both.
func (c *Cluster) systemIDWhileStopped(t *testing.T, id string) {
	t.Helper()

	c.killAgent(t, 1)
	defer c.startAgent(t, 1)

	c.stopped(t, "node1-ovn-controller", func() {
		c.setSystemID(t, 1, id)
		c.awaitReport(t, 0, "", map[string]string{"agent": "degraded: does not answer", "ovn": "broken: ovn-controller does not"})
	})
}

// systemIDWithoutController changes the system-id of node1 while ovn-controller does not run. The
// node reports that its chassis is missing, until ovn-controller starts.
func (c *Cluster) systemIDWithoutController(t *testing.T, id string) {
	t.Helper()
	before := c.nodeEvents(t, "node1", "ChassisDiffers")
	fault := fmt.Sprintf("chassis %q of node node1 is not in the Southbound database", id)

	c.stopped(t, "node1-ovn-controller", func() {
		c.setSystemID(t, 1, id)
		c.hasFault(t, 1, fault, true)
		c.awaitReport(t, http.StatusOK, "degraded: "+fault, map[string]string{"environment": "degraded: " + fault, "ovn": "broken: ovn-controller does not"})
		c.awaitNodeEvent(t, "node1", "ChassisDiffers", fault, before)
	})
	c.hasFault(t, 1, fault, false)
}

// testReinstalled: Open vSwitch of node1 is removed and installed again under a running agent. Its
// database is empty then, and it has a system-id of its own. Nothing is restarted by hand. In
// between, the node is not ready, and says why. If that lasts, an Event says so, too, as soon as the
// node reaches the API server.
func testReinstalled(t *testing.T, c *Cluster) {
	const id = "2c9f2d3e-reinstalled"

	was, before := c.systemID(t, 1), c.nodeEvents(t, "node1", environment.NotReady)
	lacks := "OVSDB " + c.Node(1).OVSDB + ": not connected"
	// On the userspace datapath, breth0 has no carrier without ovs-vswitchd, so the host has no network.
	cutsOff := c.layout == bridged && c.Datapath() == ovs.DatapathNetdev
	hasEvent := func() error {
		events := c.nodeEvents(t, "node1", environment.NotReady)
		if len(events) > len(before) && slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, lacks) }) {
			return nil
		}

		return fmt.Errorf("events %q, before %q", events, before)
	}

	logBefore, err := c.agentLog()
	if err != nil {
		t.Fatal(err)
	}

	if err := c.RemoveSwitch(1); err != nil {
		t.Fatal(err)
	}

	t.Run("removed", func(t *testing.T) { // if it fails, Open vSwitch is installed nevertheless
		c.awaitReport(t, http.StatusServiceUnavailable, lacks, map[string]string{
			"agent": "broken: not ready: " + lacks, "ovsdb": "broken: ", "flows": "broken: cannot read them from ovs-vswitchd", "ovn": "broken: ovn-controller does not",
		})

		if testing.Short() { // the agent waits for half a minute or more
			return
		}

		if !cutsOff {
			withinTime(t, 2*time.Minute, "Event NetworkNotReady", hasEvent)
			return
		}

		withinTime(t, 2*time.Minute, "Event NetworkNotReady, or a failure to write it", func() error {
			log, err := c.agentLog()
			if err != nil || strings.Contains(log[len(logBefore):], "write event "+environment.NotReady) {
				return err
			}

			return hasEvent() // the NIC was moved to the bridge seconds ago, and the watchdog moved it back
		})
	})

	if err := c.InstallSwitch(t.Context(), 1, id); err != nil {
		t.Fatal(err)
	}

	bothFamilies(t, func(t *testing.T, v6 bool) {
		within(t, "ssh to the host", func() error { return c.ask(t, "ext", port(c.node(1)(v6), sshPort)) })
	})
	c.isChassis(t, id, was)
	c.hasFault(t, 1, "system-id", false)

	if cutsOff && !testing.Short() {
		withinTime(t, time.Minute, "Event NetworkNotReady", hasEvent)
	}
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
// The node has no fault, and reports none.
func testNetworkUnavailable(t *testing.T, c *Cluster) {
	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	conditions := func() (map[corev1.NodeConditionType]corev1.NodeCondition, error) {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "node1", metav1.GetOptions{})
		if err != nil {
			return nil, err
		}

		all := map[corev1.NodeConditionType]corev1.NodeCondition{}
		for _, condition := range n.Status.Conditions {
			all[condition.Type] = condition
		}

		return all, nil
	}

	before := c.report(t)
	c.frozen(t, "controller", func() { // it would clear the condition at once
		body := `{"status":{"conditions":[{"type":"NetworkUnavailable","status":"True","reason":"NoRouteCreated"}]}}`
		if _, err := client.CoreV1().Nodes().Patch(t.Context(), "node1", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}

		c.reportsNothing(t, before)

		if err := c.northSouth(t)(); err != nil {
			t.Errorf("while the condition is set: %v", err)
		}

		if all, err := conditions(); err != nil || all[corev1.NodeNetworkUnavailable].Status != corev1.ConditionTrue {
			t.Errorf("conditions before the controller continues: %v, %v", all, err)
		}
	})

	within(t, "the condition is cleared", func() error {
		all, err := conditions()
		if err != nil {
			return err
		}

		if c := all[corev1.NodeNetworkUnavailable]; c.Status != corev1.ConditionFalse || c.Reason != "NetworkReady" || all[corev1.NodeReady].Status != corev1.ConditionTrue {
			return fmt.Errorf("conditions %v", all)
		}

		return nil
	})
	c.reportsNothing(t, before)

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
