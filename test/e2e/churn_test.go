package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testChurn: pods come and go on both nodes. A pair of other pods on two nodes loses no echo.
func testChurn(t *testing.T, c *Cluster) {
	pods := 100
	if testing.Short() || patience() > 1 {
		pods = 20
	}
	if reason := c.tunnelsFail(t); reason != "" {
		t.Skip(reason)
	}

	pair := c.pingPair(t, "0.05")
	for i := range pods {
		pod, err := c.AddPod(t.Context(), lab.PodSpec{Name: "churn-" + strconv.Itoa(i), Node: c.Node(1 + i%2).Name})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.DelPod(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	lost := pair.stop(t)
	t.Logf("%d pods: %v", pods, lost)
	none(t, lost, true)
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
