package e2e

import (
	"encoding/json"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab/traffic"
)

// testLarge: packets that fill a pod's MTU, and ones that must be fragmented, to
// the host and from a pod. What comes for a pod and is larger than its MTU, OVN
// cannot fragment again: it says so, and a datagram that is in fragments
// already is lost. So the remote's route makes its fragments small enough.
func testLarge(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} {
		c.ping(t, "outside to host", "ext", c.node(1)(v6), "-c", "5", "-i", "0.1", "-s", "4000").pinged(t, 5)
		c.ping(t, "host to outside", "node1", outside(v6), "-c", "5", "-i", "0.1", "-s", "4000").pinged(t, 5)
		c.ping(t, "pod to outside, whole", host("a"), outside(v6), "-c", "5", "-i", "0.1", "-s", "1380", "-M", "do").pinged(t, 5)
		route := func(verb string) {
			if _, err := c.Exec(t.Context(), "ext", "ip", "route", verb, c.node(1)(v6).String(), "dev", "eth0", "mtu", "1400"); err != nil {
				t.Fatal(err)
			}
		}
		route("add")
		c.ping(t, "pod to outside, fragments", host("a"), outside(v6), "-c", "5", "-i", "0.1", "-s", "4000").pinged(t, 5)
		route("del")
	}
}

// testEcho: echo replies go to whom asked, though both ask one remote at once.
func testEcho(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} {
		before, err := ReadTally(c.Node(1).PinDir)
		if err != nil {
			t.Fatal(err)
		}
		pod := c.ping(t, "pod to outside", host("a"), outside(v6), "-c", "100", "-i", "0.01")
		node := c.ping(t, "host to outside", "node1", outside(v6), "-c", "50", "-i", "0.02")
		in := c.ping(t, "outside to host", "ext", c.node(1)(v6), "-c", "50", "-i", "0.02")
		pod.pinged(t, 100)
		node.pinged(t, 50)
		in.pinged(t, 50)
		after, err := ReadTally(c.Node(1).PinDir)
		if err != nil {
			t.Fatal(err)
		}
		moved := after.minus(before)
		if moved.OVNRx != 100 || moved.OVNTx != 100 || moved.HostRx < 100 {
			t.Errorf("v6 %v: 100 echoes of a pod and 100 of the host moved %+v", v6, moved)
		}
	}
}

// testSweep: a pod that takes a port of the host's as its source and meets
// every port of a peer cuts neither a live nor a new connection of that peer.
func testSweep(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} {
		ssh := port(c.node(1)(v6), sshPort)
		live := c.hold(t, "live connection to port 22", "ext", ssh, 12*time.Second, "-sport", "900")
		out, err := c.Exec(t.Context(), host("a"), c.traffic("sweep", port(outside(v6), 0).String(), "-sport", "22", "-ports", "1-1023", "-timeout", "3s")...)
		if err != nil {
			t.Fatal(err)
		}
		var swept traffic.SweepReport
		if err := json.Unmarshal(out, &swept); err != nil || swept.Connected == 0 || swept.Connected+swept.Refused != swept.Attempts {
			t.Errorf("the pod's own connections: %+v, %v", swept, err)
		}
		// From a port that the pod has just met with its port 22, and anew.
		for sport := 1000; sport < 1020; sport++ {
			if err := c.ask(t, "ext", ssh, "-sport", strconv.Itoa(sport)); err != nil {
				t.Errorf("new connection from port %d to port 22: %v", sport, err)
			}
		}
		live.held(t)
	}
}

// testRestart: nothing is lost on the host's path, and pods' connections live
// on, while the agent is restarted and while it is killed and started.
func testRestart(t *testing.T, c *Cluster) {
	const duration = 40 * time.Second
	pings := c.ping(t, "10,000 pings", "ext", c.node(1)(false), "-c", "10000", "-i", "0.003")
	stream := c.run(t, "30 s stream", "ext", c.traffic("stream", port(c.node(1)(false), sshPort).String(), "-duration", "30s")...)
	holds := []*background{}
	for _, v6 := range []bool{false, true} {
		holds = append(
			holds,
			c.hold(t, "host connection", "ext", port(c.node(1)(v6), sshPort), duration),
			c.hold(t, "pod to outside", host("a"), port(outside(v6), outsidePort), duration),
			c.hold(t, "outside to NodePort", "ext", port(c.node(1)(v6), nodePort), duration),
			c.hold(t, "pod to pod", host("a"), port(c.pod("c")(v6), podPort), duration),
		)
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		time.Sleep(2 * time.Second)
		if err := c.StopAgent(1, signal); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the node without its agent
		if err := c.StartAgent(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := c.AwaitAgent(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	pings.pinged(t, 10000)
	var streamed traffic.StreamReport
	if err := json.Unmarshal([]byte(stream.wait(t)), &streamed); err != nil || streamed.Bytes == 0 {
		t.Errorf("stream: %+v, %v", streamed, err)
	}
	t.Logf("stream: %+v", streamed)
	for _, h := range holds {
		h.held(t)
	}
}

// testRepair: what others do to the node is put right, and the host does not
// notice.
func testRepair(t *testing.T, c *Cluster) {
	n := c.Node(1)
	northSouth := func() error {
		return c.ask(t, host("a"), port(outside(false), outsidePort))
	}
	ssh := port(c.node(1)(false), sshPort)
	t.Run("bridge deleted", func(t *testing.T) {
		live := c.hold(t, "host connection", "ext", ssh, 5*time.Second)
		if _, err := c.Exec(t.Context(), n.Name, "ovs-vsctl", "--db="+n.OVSDB, "del-br", "breth0"); err != nil {
			t.Fatal(err)
		}
		within(t, "pod to outside", northSouth)
		live.held(t)
	})
	t.Run("vswitchd restarted", func(t *testing.T) {
		live := c.hold(t, "host connection", "ext", ssh, 5*time.Second)
		if err := c.StopVswitchd(1); err != nil {
			t.Fatal(err)
		}
		if err := c.StartVswitchd(1); err != nil {
			t.Fatal(err)
		}
		within(t, "pod to outside", northSouth)
		live.held(t)
	})
	t.Run("uplink down and up", func(t *testing.T) {
		// Down takes routes and IPv6 addresses along; giving them back is the
		// network manager's business, here the test's.
		for _, argv := range [][]string{
			{"link", "set", "eth0", "down"},
			{"link", "set", "eth0", "up"},
			{"addr", "add", n.IP6.String() + "/64", "dev", "eth0", "nodad"},
			{"route", "replace", "default", "via", outside(false).String()},
			{"-6", "route", "replace", "default", "via", outside(true).String()},
		} {
			if _, err := c.Exec(t.Context(), n.Name, append([]string{"ip"}, argv...)...); err != nil {
				t.Fatal(err)
			}
		}
		within(t, "outside to host", func() error { return c.ask(t, "ext", ssh) })
		within(t, "pod to outside", northSouth)
	})
	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
}

// testPodAgain: a pod of the same name comes back as another pod.
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
	within(t, "pod to the new pod", func() error {
		return c.ask(t, host("a"), port(c.pod("b")(true), podPort))
	})
}

// testHostAlone: without agent, ovs-vswitchd and bridge the host's connections
// go on, and new ones come. It is the last: the node has no networking for
// pods any more.
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
		if !v6 {
			if err := c.StopVswitchd(1); err != nil {
				t.Fatal(err)
			}
			deleteBridge(t, c, n.Name)
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

// deleteBridge takes the interface away under ovs-vswitchd: a tap of the
// userspace datapath is a link like any other, an internal port of the kernel's
// goes with its datapath.
func deleteBridge(t *testing.T, c *Cluster, node string) {
	t.Helper()
	if _, err := c.Exec(t.Context(), node, "ip", "link", "del", "breth0"); err == nil {
		return
	}
	if _, err := c.Exec(t.Context(), node, "ovs-dpctl", "del-dp", "ovs-system"); err != nil {
		t.Fatal(err)
	}
}
