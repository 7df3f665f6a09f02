package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// extMAC returns the link-layer address of the outside host, which is the nodes' router.
func (c *Cluster) extMAC(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(c.execute(t, "ext", "ip", "-o", "link", "show", c.ExtDevice()), "link/ether ")
	mac, _, _ := strings.Cut(rest, " ")

	return mac
}

// setExtMAC changes it. Linux announces no such change.
func (c *Cluster) setExtMAC(t *testing.T, mac string) {
	t.Helper()
	c.execute(t, "ext", "ip", "link", "set", c.ExtDevice(), "address", mac)
}

// testNextHopMoves: the next hop of all nodes gets another link-layer address and does not announce
// it. Pods reach other networks again as soon as the kernel knows it. The kernel finds out by
// itself, also for an agent that starts meanwhile.
func testNextHopMoves(t *testing.T, c *Cluster) {
	first := c.extMAC(t)
	defer func() {
		c.setExtMAC(t, first)
		c.setNextHopMAC(t, first)
		c.reachBeyond(t)
	}()

	c.reachBeyond(t)

	for _, n := range c.Nodes() { // otherwise the kernel believes an answer for up to 45 s
		for _, family := range []string{"ipv4", "ipv6"} {
			key := "net." + family + ".neigh." + c.Uplink() + ".base_reachable_time_ms"
			before := strings.TrimSpace(c.execute(t, n.Name, "sysctl", "-n", key))

			c.execute(t, n.Name, "sysctl", "-qw", key+"=1000")
			defer c.execute(t, n.Name, "sysctl", "-qw", key+"="+before)
		}
	}

	for i, how := range []string{"told", "asked", "agent restarted", "OVN does not follow"} {
		t.Run(how, func(t *testing.T) {
			if (how == "asked" || how == "OVN does not follow") && testing.Short() {
				t.Skip(inFull)
			}

			before, begun := c.report(t), time.Now()
			was, mac := c.extMAC(t), net.HardwareAddr{2, 0xff, 0, 0, 0, byte(i)}.String()

			switch how {
			case "told", "asked":
				c.setExtMAC(t, mac)

				if how == "told" {
					c.setNextHopMAC(t, mac)
				}

				c.reportsNothing(t, before) // the fault is too new
			case "agent restarted":
				c.killAgent(t, 1)
				c.setExtMAC(t, mac)
				c.setNextHopMAC(t, mac)
				c.awaitReport(t, 0, "", map[string]string{"agent": "degraded: does not answer"})
				c.startAgent(t, 1)

				if err := c.AwaitAgent(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
			case "OVN does not follow":
				c.outdatedRouter(t, was, mac)
			}

			c.reachBeyond(t)

			took := time.Since(begun)
			t.Logf("pods of both nodes reach other networks after %s", took.Round(100*time.Millisecond))

			for i := range c.Nodes() {
				c.hasFault(t, i+1, "next hop", false)
			}

			if took < hopFault && how != "agent restarted" {
				c.reportsNothing(t, before)
			}
		})
	}
}

// hopFault is how long the gateway router's next hop may differ from the host's before the node
// reports it.
const hopFault = 15 * time.Second

// outdatedRouter gives the next hop another link-layer address while ovn-controller of node1 does
// not run. The node reports that its gateway router sends to the former address, until
// ovn-controller starts.
func (c *Cluster) outdatedRouter(t *testing.T, was, mac string) {
	t.Helper()
	events := c.nodeEvents(t, "node1", "NextHopUnreachable")
	fault := fmt.Sprintf("the gateway router sends to next hop %s at %s, and the host has it at %s", outside(false), was, mac)

	c.stopped(t, "node1-ovn-controller", func() {
		c.setExtMAC(t, mac)
		c.setNextHopMAC(t, mac)
		c.hasFault(t, 1, fault, true)
		c.awaitReport(t, http.StatusOK, "degraded: "+fault, map[string]string{"environment": "degraded: " + fault, "ovn": "broken: ovn-controller does not"})
		c.awaitNodeEvent(t, "node1", "NextHopUnreachable", fault, events)

		if err := isUnanswered(c.ask(t, host("a"), port(beyond(false), outsidePort))); err != nil {
			t.Errorf("while the fault is reported: %v", err)
		}
	})
	c.hasFault(t, 1, fault, false)
}

// setNextHopMAC gives the kernels of all nodes the link-layer address of the outside host.
func (c *Cluster) setNextHopMAC(t *testing.T, mac string) {
	t.Helper()

	for _, n := range c.Nodes() {
		for _, v6 := range []bool{false, true} {
			c.execute(t, n.Name, "ip", "neigh", "replace", outside(v6).String(), "dev", c.Uplink(), "lladdr", mac, "nud", "reachable")
		}
	}
}

// reachBeyond waits until pods of both nodes reach a network behind the next hop.
func (c *Cluster) reachBeyond(t *testing.T) {
	t.Helper()

	for _, pod := range []string{"a", "c"} {
		for _, v6 := range []bool{false, true} {
			within(t, fmt.Sprintf("pod %s reaches %s", pod, beyond(v6)), func() error { return c.ask(t, host(pod), port(beyond(v6), outsidePort)) })
		}
	}
}

// testNextHopSilent: the next hop does not answer. Status, readiness and an Event say so until it
// does.
func testNextHopSilent(t *testing.T, c *Cluster) {
	before := c.nodeEvents(t, "node1", "NextHopUnreachable")
	c.execute(t, "ext", "sysctl", "-qw", "net.ipv4.conf."+c.ExtDevice()+".arp_ignore=8")

	restore := func() { c.execute(t, "ext", "sysctl", "-qw", "net.ipv4.conf."+c.ExtDevice()+".arp_ignore=0") }
	defer restore()

	c.execute(t, "node1", "ip", "neigh", "flush", "to", outside(false).String())
	fault := fmt.Sprintf("next hop %s of %s does not answer", outside(false), c.Uplink())
	c.hasFault(t, 1, fault, true)
	c.awaitNodeEvent(t, "node1", "NextHopUnreachable", fault, before)
	restore()
	c.hasFault(t, 1, fault, false)
	c.reachBeyond(t)
}

// testPeerMoves: a host on the uplink's network, not a next hop, gets another link-layer address
// and does not announce it. OVN forgets the old one after a while.
func testPeerMoves(t *testing.T, c *Cluster) {
	peers := []netip.Prefix{netip.MustParsePrefix("172.30.0.222/24"), netip.MustParsePrefix("fd00:172:30::222/64")}
	c.addOutsideDevice(t, "peer0", "peer1", peers)

	reach := func() error {
		return errors.Join(c.ask(t, host("a"), port(peers[0].Addr(), outsidePort)), c.ask(t, host("a"), port(peers[1].Addr(), outsidePort)))
	}
	within(t, "a pod reaches the peer", reach)
	c.execute(t, "ext", "ip", "link", "set", "peer1", "address", "02:ff:00:00:01:00")

	if err := isUnanswered(reach()); err != nil {
		t.Errorf("at once after a silent change of the peer's MAC address: %v", err)
	}

	var err error
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Second) {
		if err = reach(); err == nil || time.Now().After(end) {
			break
		}
	}

	if err != nil {
		t.Errorf("after five minutes: %v", err)
	}
}

// addOutsideDevice gives the outside host one more device on the uplink's network until the test
// ends. fabric is its other end.
func (c *Cluster) addOutsideDevice(t *testing.T, fabric, device string, addresses []netip.Prefix) {
	t.Helper()

	ns, err := c.Netns("ext")
	if err != nil {
		t.Fatal(err)
	}

	later := func(on string, argv ...string) {
		t.Cleanup(func() {
			if out, err := c.Exec(context.WithoutCancel(t.Context()), on, argv...); err != nil {
				t.Errorf("%v on %s: %v: %s", argv, on, err, out)
			}
		})
	}

	c.execute(t, "central", "ip", "link", "add", fabric, "type", "veth", "peer", "name", device, "netns", ns)
	later("central", "ip", "link", "del", fabric)
	c.execute(t, "central", "ip", "link", "set", fabric, "master", lab.FabricBridge, "up")

	for _, key := range []string{"all.arp_ignore=1", "all.arp_announce=2"} { // each address at its own device
		name, _, _ := strings.Cut(key, "=")
		c.execute(t, "ext", "sysctl", "-qw", "net.ipv4.conf."+key)
		later("ext", "sysctl", "-qw", "net.ipv4.conf."+name+"=0")
	}

	c.execute(t, "ext", "ip", "link", "set", device, "up")

	for _, p := range addresses {
		c.execute(t, "ext", append([]string{"ip", "addr", "add", p.String(), "dev", device, "noprefixroute"}, nodad(p.Addr().Is6())...)...)
	}
}

// needsRouter: the gateway routers and the hosts have the outside host as next hop.
func needsRouter(c *Cluster) string {
	if reason := needsSharedNIC(c); reason != "" {
		return reason
	}

	if c.local {
		return "local gateway mode: the host routes what pods send, with its own next hop"
	}

	return ""
}
