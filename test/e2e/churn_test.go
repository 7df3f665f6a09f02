package e2e

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// podsEnv is the number of pods that come and go. test/vm/suite -a sets it for layout direct.
const podsEnv = "OVN_EBPF_E2E_PODS"

// churnPods returns the number of pods that come and go: 100, or 20 with -short and in the test VM,
// where 100 take a quarter of an hour.
func churnPods(t *testing.T) int {
	t.Helper()

	if text := os.Getenv(podsEnv); text != "" {
		pods, err := strconv.Atoi(text)
		if err != nil || pods < 1 {
			t.Fatalf("%s=%s: want a number of pods", podsEnv, text)
		}

		return pods
	}

	if testing.Short() || patience() > 1 {
		return 20
	}

	return 100
}

// testChurn: pods come and go on both nodes at a time. A pair of other pods on two nodes loses no
// echo. Afterwards, the addresses of the former pods are released, and their ports are gone.
func testChurn(t *testing.T, c *Cluster) {
	pods := churnPods(t)
	if reason := c.tunnelsFail(t); reason != "" {
		t.Skip(reason)
	}

	allocated := c.allocatedAddresses(t)
	pair := c.pingPair(t, "0.05")

	nodes, ctx := errgroup.WithContext(t.Context())
	for _, i := range []int{1, 2} {
		nodes.Go(func() error { return c.churn(ctx, c.Node(i).Name, pods/2) })
	}

	if err := nodes.Wait(); err != nil {
		t.Error(err)
	}

	lost := pair.stop(t)
	t.Logf("%d pods: %v", pods, lost)
	none(t, lost, true)

	within(t, "the pods leave nothing", func() error {
		if now := c.allocatedAddresses(t); now > allocated {
			return fmt.Errorf("%d pod addresses are allocated, before %d", now, allocated)
		}

		ports := c.execute(t, "central", "ovn-nbctl", "--db="+c.NBAddress(), "--bare", "--columns=name", "list", "Logical_Switch_Port")
		for _, n := range []int{1, 2} {
			ports += c.execute(t, c.Node(n).Name, "ovs-vsctl", "--db="+c.Node(n).OVSDB, "--bare", "--columns=external_ids", "list", "Interface")
		}

		if left := regexp.MustCompile(`\bdefault_churn-\S+`).FindAllString(ports, -1); len(left) > 0 {
			return fmt.Errorf("ports of %v", left)
		}

		return nil
	})
}

// churn creates and deletes pods of a node, one after the other.
func (c *Cluster) churn(ctx context.Context, node string, pods int) error {
	for i := range pods {
		pod, err := c.AddPod(ctx, lab.PodSpec{Name: fmt.Sprintf("churn-%s-%d", node, i), Node: node})
		if err != nil {
			return err
		}

		if err := c.DelPod(ctx, pod); err != nil {
			return err
		}
	}

	return nil
}

// allocatedAddresses returns how many addresses the controller has allocated to pods.
func (c *Cluster) allocatedAddresses(t *testing.T) int {
	t.Helper()

	client, err := c.Client("central")
	if err != nil {
		t.Fatal(err)
	}

	body := fetch(t, client, "http://127.0.0.1:9409/metrics")

	m := regexp.MustCompile(`(?m)^ovnkube_controller_allocated_pod_addresses (\d+)$`).FindStringSubmatch(body)
	if m == nil {
		t.Fatal("the controller has no metric of allocated addresses")
	}

	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}

	return n
}

// pair is the pings of a pod to a pod of another node, of both families.
type pair []*background

func (c *Cluster) pingPair(t *testing.T, interval string) pair {
	t.Helper()

	var pings pair

	for _, v6 := range []bool{false, true} {
		within(t, "the pair", func() error { return c.ask(t, host("a"), port(c.pod("c")(v6), podPort)) })
	}

	for _, v6 := range []bool{false, true} {
		pings = append(pings, c.run(t, Result{V6: v6}.Family(), host("a"), "ping", "-n", "-i", interval, c.pod("c")(v6).String()))
	}

	return pings
}

// stop ends the pings and returns the lost echoes.
func (p pair) stop(t *testing.T) []lostPings {
	t.Helper()

	var lost []lostPings

	for _, b := range p {
		b.stop(t)
		lost = append(lost, lostOf(b.name, false, b.wait(t)))
	}

	return lost
}

// tunnelsFail returns why the datapath cannot keep the packets of tunnels while pods come and go, or
// "". At each change of a device, Open vSwitch's userspace datapath forgets its routes and its
// tunnels' local address, and reads them again. Seen with Open vSwitch 3.5: 2 to 15 of 330 echoes
// lost for 100 pods. So this function changes devices that are not of pods, until an echo is lost.
func (c *Cluster) tunnelsFail(t *testing.T) string {
	t.Helper()

	if c.Datapath() == "system" {
		return ""
	}

	const rounds, devices = 5, 20

	change := strings.Repeat(`link add churn0 type veth peer name churn1\nlink set churn0 up promisc on\nlink del churn0\n`, devices)

	for round := range rounds {
		pair := c.pingPair(t, "0.005")
		c.execute(t, "node1", "sh", "-ec", "printf '"+change+"' | ip -batch -")

		lost := pair.stop(t)
		if slices.ContainsFunc(lost, func(p lostPings) bool { return p.lost > 0 }) {
			return fmt.Sprintf("datapath %s loses packets of tunnels while %d devices change that are not of pods: %v", c.Datapath(), (round+1)*devices, lost)
		}
	}

	return ""
}
