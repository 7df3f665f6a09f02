package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testIdle: only the connection tracker could forget an idle connection of a pod, as the gateway
// has no TCP state. The tracker keeps it for more than an hour.
func testIdle(t *testing.T, c *Cluster) {
	const hour = 3600

	timeout := regexp.MustCompile(`timeout=(\d+)`)

	for _, v6 := range []bool{false, true} {
		silent := c.run(t, "idle connection", host("a"), c.traffic("later", port(outside(v6), outsidePort).String(), "-duration", "8s", "-timeout", "30s")...)
		within(t, "the connection's entries", func() error {
			found := 0

			for line := range strings.Lines(c.trackedBy(t, "node1")) {
				if !strings.Contains(line, "src="+c.pod("a")(v6).String()) || !strings.Contains(line, fmt.Sprintf("dport=%d)", outsidePort)) || !strings.Contains(line, "ESTABLISHED") {
					continue
				}

				left := timeout.FindStringSubmatch(line)
				if left == nil {
					return fmt.Errorf("no timeout in %q", line)
				}

				if seconds, _ := strconv.Atoi(left[1]); seconds < hour {
					return fmt.Errorf("%s s left, want an hour: %q", left[1], line)
				}

				found++
			}

			if found == 0 {
				return fmt.Errorf("none")
			}

			return nil
		})

		if out := silent.wait(t); !strings.HasPrefix(out, "ext ") {
			t.Errorf("%s: %q", silent.name, out)
		}
	}
}

// trackedBy lists the entries of the node's connection trackers, with timeouts.
func (c *Cluster) trackedBy(t *testing.T, node string) string {
	t.Helper()
	return c.execute(t, node, "ovs-appctl", "-t", "ovs-vswitchd", "dpctl/dump-conntrack", "-m", "-s")
}

// testRemoteFirst: the agent restarts while a pod's connection is idle; then the remote side sends
// first. On the kernel datapath ovs-vswitchd restarts as well; the userspace connection tracker
// would be lost with it.
func testRemoteFirst(t *testing.T, c *Cluster) {
	idle := 25 * time.Second
	if patience() > 1 {
		idle *= 3 // as long as the restarts take
	}

	var waiting []*background
	for _, v6 := range []bool{false, true} {
		waiting = append(waiting, c.run(t, "idle connection", host("a"), c.traffic("later", port(outside(v6), outsidePort).String(), "-duration", idle.String(), "-timeout", (idle+5*time.Second).String())...))
	}

	time.Sleep(2 * time.Second)

	if err := c.StopAgent(1, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if c.Datapath() == "system" {
		if err := c.StopVswitchd(1); err != nil {
			t.Fatal(err)
		}

		if err := c.StartVswitchd(1); err != nil {
			t.Fatal(err)
		}
	}

	if err := c.StartAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	for _, w := range waiting {
		if out := w.wait(t); !strings.HasPrefix(out, "ext ") {
			t.Errorf("%s: %q", w.name, out)
		}
	}
}

// testEndpointGone: UDP clients with a fixed port, one outside and a host socket, do not stay with
// a deleted pod. The outside client pauses meanwhile: packets sent before ovs-vswitchd has updated
// its flows would recreate the connection tracker's entry for the old pod.
func testEndpointGone(t *testing.T, c *Cluster) {
	const node = 30085

	if err := c.addPod(t.Context(), "d", "node1"); err != nil {
		t.Fatal(err)
	}

	spec := lab.ServiceSpec{Name: "leaving", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, node), Pods: []*lab.Pod{c.Pods["d"]}}
	if err := c.addService(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.DelService(t.Context(), "default", "leaving"); err != nil {
			t.Error(err)
		}
	}()

	inside := func(v6 bool) netip.AddrPort { return port(c.cluster("leaving")(v6), servicePort) }
	served := func(on, by string, to netip.AddrPort, argv ...string) error {
		out, err := c.Exec(t.Context(), on, append(c.traffic("udp", to.String(), "-timeout", "2s"), argv...)...)
		if server, _, _ := strings.Cut(string(out), " "); err == nil && server != by {
			err = fmt.Errorf("answered by %q, want %s", server, by)
		}

		return err
	}

	var sockets []*background

	for _, v6 := range []bool{false, true} {
		within(t, "pod d, from outside", func() error { return served("ext", "d", port(c.gateway(1)(v6), node), "-sport", "40123") })
		within(t, "pod d, from the host", func() error { return served("node1", "d", inside(v6)) })
		sockets = append(sockets, c.hold(t, "host socket", "node1", inside(v6), 2*time.Minute, "-udp"))
	}

	time.Sleep(2 * time.Second) // time for the first packets

	spec.Pods = []*lab.Pod{c.Pods["c"]}
	if err := c.SetEndpoints(t.Context(), c.Services["leaving"], spec); err != nil {
		t.Fatal(err)
	}

	if err := c.DelPod(t.Context(), c.Pods["d"]); err != nil {
		t.Fatal(err)
	}

	delete(c.Pods, "d")

	for i, v6 := range []bool{false, true} {
		if <-sockets[i].done; sockets[i].failed == nil || !strings.Contains(sockets[i].out.String(), "abort") {
			t.Errorf("host socket, v6 %v: %v: %s, want it aborted", v6, sockets[i].failed, sockets[i].out.String())
		}

		within(t, "pod c, from the host", func() error { return served("node1", "c", inside(v6)) })

		if err := served("ext", "c", port(c.gateway(1)(v6), node), "-sport", "40123"); err != nil {
			t.Errorf("from outside, v6 %v: %v", v6, err)
		}
	}
}

// testKills: the agent is killed at many points of its start. The host loses no packets, and
// finally the agent becomes ready.
func testKills(t *testing.T, c *Cluster) {
	pings := c.ping(t, "pings", "ext", c.node(1)(false), "-c", "1500", "-i", "0.01")
	live := c.hold(t, "host connection", "ext", port(c.node(1)(true), sshPort), 15*time.Second)

	pod := c.hold(t, "pod to outside", host("a"), port(outside(true), outsidePort), 15*time.Second)
	for kill := range 15 {
		if err := c.StopAgent(1, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		if err := c.StartAgent(t.Context(), 1); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Duration(kill) * 35 * time.Millisecond)
	}

	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	pings.pinged(t, 1500)
	live.held(t)
	pod.held(t)
}
