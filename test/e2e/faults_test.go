package e2e

import (
	"syscall"
	"testing"
	"time"
)

// testLarge: packets that fill a pod's MTU, and larger ones that must be fragmented, to the host
// and from a pod. OVN cannot fragment packets to a pod again: it sends an ICMP error, and drops
// already fragmented datagrams. So the remote's route makes its fragments small enough.
func testLarge(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} {
		c.ping(t, "outside to host", "ext", c.node(1)(v6), "-c", "5", "-i", "0.1", "-s", "4000").pinged(t, 5)
		c.ping(t, "host to outside", "node1", outside(v6), "-c", "5", "-i", "0.1", "-s", "4000").pinged(t, 5)
		c.ping(t, "pod to outside, whole", host("a"), outside(v6), "-c", "5", "-i", "0.1", "-s", "1380", "-M", "do").pinged(t, 5)

		route := func(verb string) {
			if _, err := c.Exec(t.Context(), "ext", "ip", "route", verb, c.gateway(1)(v6).String(), "dev", c.ExtDevice(), "mtu", "1400"); err != nil {
				t.Fatal(err)
			}
		}
		route("add")
		c.ping(t, "pod to outside, fragments", host("a"), outside(v6), "-c", "5", "-i", "0.1", "-s", "4000").pinged(t, 5)
		route("del")
	}
}

// testEcho: echo replies reach their requester, though pod and host ping one remote at the same
// time.
func testEcho(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} {
		before, err := c.tallies()
		if err != nil {
			t.Fatal(err)
		}

		pod := c.ping(t, "pod to outside", host("a"), outside(v6), "-c", "100", "-i", "0.01")
		node := c.ping(t, "host to outside", "node1", outside(v6), "-c", "50", "-i", "0.02")
		in := c.ping(t, "outside to host", "ext", c.node(1)(v6), "-c", "50", "-i", "0.02")
		pod.pinged(t, 100)
		node.pinged(t, 50)
		in.pinged(t, 50)

		after, err := c.tallies()
		if err != nil {
			t.Fatal(err)
		}

		pods, hosts := uint64(100), uint64(100)

		switch {
		case c.flows: // flows have no such counters
			continue
		case c.local:
			pods, hosts = 0, 200
		case c.layout == dedicated:
			hosts = 0
		}

		moved := after["node1"].minus(before["node1"])
		if moved.Both != pods || moved.OVNRx != 0 || moved.OVNTx != pods || moved.HostRx < hosts {
			t.Errorf("v6 %v: 100 echoes of a pod and 100 of the host moved %+v", v6, moved)
		}
	}
}

// repairs are changes to the node by others.
var repairs = []struct {
	name string
	run  func(*testing.T, *Cluster)
}{
	{"bridge deleted", testBridgeDeleted},
	{"vswitchd restarted", testVswitchdRestarted},
	{"uplink down and up", testUplinkDown},
}

// testRepair: the agent repairs the node without effect on the host's connections.
func testRepair(t *testing.T, c *Cluster) {
	for _, r := range repairs {
		t.Run(r.name, func(t *testing.T) { r.run(t, c) })
	}

	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) northSouth(t *testing.T) func() error {
	return func() error { return c.ask(t, host("a"), port(outside(false), outsidePort)) }
}

func testBridgeDeleted(t *testing.T, c *Cluster) {
	live := c.hold(t, "host connection", "ext", port(c.node(1)(false), sshPort), 5*time.Second)
	c.execute(t, "node1", "ovs-vsctl", "--db="+c.Node(1).OVSDB, "del-br", c.bridge())
	within(t, "pod to outside", c.northSouth(t))
	live.held(t)
}

func testVswitchdRestarted(t *testing.T, c *Cluster) {
	live := c.hold(t, "host connection", "ext", port(c.node(1)(false), sshPort), 5*time.Second)
	if err := c.StopVswitchd(1); err != nil {
		t.Fatal(err)
	}

	if err := c.StartVswitchd(1); err != nil {
		t.Fatal(err)
	}

	within(t, "pod to outside", c.northSouth(t))
	live.held(t)
}

// testUplinkDown: down removes routes and IPv6 addresses. A network manager restores them, here the
// test.
func testUplinkDown(t *testing.T, c *Cluster) {
	for _, argv := range [][]string{
		{"link", "set", c.uplink, "down"},
		{"link", "set", c.uplink, "up"},
		{"addr", "replace", c.Node(1).IP6.String() + "/64", "dev", c.Uplink(), "nodad"},
		{"route", "replace", "default", "via", outside(false).String()},
		{"-6", "route", "replace", "default", "via", outside(true).String()},
	} {
		c.execute(t, "node1", append([]string{"ip"}, argv...)...)
	}

	within(t, "outside to host", func() error { return c.ask(t, "ext", port(c.node(1)(false), sshPort)) })
	within(t, "pod to outside", c.northSouth(t))
}

// testPodAgain: a pod is recreated under the same name.
func testPodAgain(t *testing.T, c *Cluster) {
	old := c.Pods["b"]
	if err := c.DelPod(t.Context(), old); err != nil {
		t.Fatal(err)
	}

	if err := c.addPod(t.Context(), "b", "node1"); err != nil {
		t.Fatal(err)
	}

	if c.Pods["b"].UID == old.UID {
		t.Errorf("the new pod has the old one's UID %s", old.UID)
	}

	if err := c.renewServices(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}

	within(t, "pod to the new pod", func() error {
		return c.ask(t, host("a"), port(c.pod("b")(true), podPort))
	})
}

// testHostAlone: without agent, ovs-vswitchd and bridge, the host's connections continue, and new
// ones work. If the bridge has the host's addresses, it must stay; if flows are the gateway,
// ovs-vswitchd must stay as well. This test is the last one, as the node loses its pod network.
func testHostAlone(t *testing.T, c *Cluster) {
	n := c.Node(1)

	for _, v6 := range []bool{false, true} {
		if !v6 {
			if err := c.StopAgent(1, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}

		ssh := port(c.node(1)(v6), sshPort)

		live := c.hold(t, "live connection", "ext", ssh, 6*time.Second)
		if !v6 && !c.flows {
			if err := c.StopVswitchd(1); err != nil {
				t.Fatal(err)
			}

			if c.layout != bridged {
				deleteBridge(t, c, n.Name)
			}
		}

		for range 20 {
			if err := c.ask(t, "ext", ssh); err != nil {
				t.Errorf("new connection: %v", err)
			}

			if err := c.ask(t, n.Name, port(outside(v6), outsidePort)); err != nil {
				t.Errorf("host to outside: %v", err)
			}
		}

		live.held(t)
	}
}

// deleteBridge deletes the interface behind ovs-vswitchd's back. A tap of the userspace datapath is
// an ordinary link; an internal port of the kernel datapath is deleted with its datapath.
func deleteBridge(t *testing.T, c *Cluster, node string) {
	t.Helper()

	if _, err := c.Exec(t.Context(), node, "ip", "link", "del", c.bridge()); err == nil {
		return
	}

	if _, err := c.Exec(t.Context(), node, "ovs-dpctl", "del-dp", "ovs-system"); err != nil {
		t.Fatal(err)
	}
}
