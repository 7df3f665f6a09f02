package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
)

// ownAddress is node1's own address of a family, and a virtual IP that comes to its device.
type ownAddress struct {
	*Cluster
	v6  bool
	own netip.Prefix
	vip netip.Prefix
}

func (c *Cluster) ownAddress(v6 bool) ownAddress {
	if v6 {
		return ownAddress{c, v6, netip.PrefixFrom(c.node(1)(true), 64), netip.MustParsePrefix("fd00:172:30::211/128")}
	}

	return ownAddress{c, v6, netip.PrefixFrom(c.node(1)(false), 24), netip.MustParsePrefix("172.30.0.211/32")}
}

func (a ownAddress) ip(t *testing.T, verb string, p netip.Prefix) {
	t.Helper()

	argv := []string{"ip", "addr", verb, p.String(), "dev", a.Uplink()}
	if verb == "add" {
		argv = append(argv, nodad(a.v6)...)
	}

	a.execute(t, "node1", argv...)
}

// restore adds the node's own address again, with the route that the kernel has removed with it.
func (a ownAddress) restore(t *testing.T) {
	t.Helper()
	a.ip(t, "add", a.own)

	family := "-4"
	if a.v6 {
		family = "-6"
	}

	a.execute(t, "node1", "ip", family, "route", "replace", "default", "via", outside(a.v6).String())
}

// isGateways waits until the Node's annotations have all addresses of the host, and p as the
// gateway's.
func (a ownAddress) isGateways(t *testing.T, p netip.Prefix, host ...netip.Prefix) {
	t.Helper()
	within(t, "gateway address "+p.String(), func() error {
		said := nodeAnnotations(t, a.Lab, "node1")

		own, err := annotation.ParseGateway(said)
		if err != nil {
			return err
		}

		cidrs, err := annotation.ParseHostCIDRs(said)
		if err != nil {
			return err
		}

		for _, h := range host {
			if !slices.Contains(cidrs, h) {
				return fmt.Errorf("addresses of the host %v, without %s", cidrs, h)
			}
		}

		if !slices.Contains(own.Addresses, p) {
			return fmt.Errorf("gateway addresses %v", own.Addresses)
		}

		return nil
	})
}

// leavesFrom waits until the outside host sees a pod's connection come from the address.
func (a ownAddress) leavesFrom(t *testing.T, p netip.Prefix) {
	t.Helper()
	within(t, "a pod's connection from "+p.Addr().String(), func() error {
		seen, err := a.clientAddresses(t, "a", a.v6)
		if err == nil && !slices.Equal(seen, []netip.Addr{p.Addr()}) {
			err = fmt.Errorf("from %v", seen)
		}

		return err
	})
}

// hasFault waits until /readyz of a node's agent and ovnkube status contain the fault, or do not.
// Without the fault the agent is ready.
func (c *Cluster) hasFault(t *testing.T, node int, fault string, present bool) {
	t.Helper()

	n := c.Node(node)
	// Agents show some faults for a minute after their end.
	withinTime(t, 2*time.Minute, fmt.Sprintf("%s: fault %q, present %t", n.Name, fault, present), func() error {
		code, body, err := c.readyz(n.Name)
		if err != nil {
			return err
		}

		if code != http.StatusOK && !present || strings.Contains(body, "degraded: "+fault) != present {
			return fmt.Errorf("readyz %d: %s", code, body)
		}

		out, err := c.Exec(t.Context(), n.Name, c.Binary("ovnkube"), "status", "--run-dir", n.RunDir)
		if strings.Contains(string(out), fault) != present {
			return fmt.Errorf("status: %s: %w", out, err)
		}

		return nil
	})
}

// isHealthy waits until all agents are ready, and neither /readyz nor ovnkube status has a fault.
// Listeners inside the SNAT range do not count: other tests leave some.
func (c *Cluster) isHealthy(t *testing.T) {
	t.Helper()

	for _, n := range c.Nodes() {
		within(t, n.Name+" has no fault", func() error {
			code, body, err := c.readyz(n.Name)
			if err == nil && (code != http.StatusOK || strings.Contains(body, "degraded")) {
				err = fmt.Errorf("readyz %d: %s", code, body)
			}

			if err != nil {
				return err
			}

			out, err := c.Exec(t.Context(), n.Name, c.Binary("ovnkube"), "status", "--run-dir", n.RunDir)

			parts := regexp.MustCompile(`(?m)^(right|degraded|broken) +([a-z]+) `).FindAllStringSubmatch(string(out), -1)
			if len(parts) == 0 {
				return fmt.Errorf("status: %s: %w", out, err)
			}

			for _, part := range parts {
				if part[1] != "right" && part[2] != "ports" {
					return fmt.Errorf("status: %s", out)
				}
			}

			return nil
		})
	}
}

// readyz returns what the agent of a node answers.
func (c *Cluster) readyz(node string) (code int, body string, err error) {
	client, err := c.Client(node)
	if err != nil {
		return 0, "", err
	}

	response, err := client.Get("http://127.0.0.1:9410/readyz")
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()

	b, err := io.ReadAll(response.Body)

	return response.StatusCode, string(b), err
}

// nodeEvents returns the messages of the Events about a Node with this reason. Without a reason, it
// returns reasons and messages of all.
func (c *Cluster) nodeEvents(t *testing.T, node, reason string) []string {
	t.Helper()

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	of := "involvedObject.name=" + node
	if reason != "" {
		of += ",reason=" + reason
	}

	events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: of})
	if err != nil {
		t.Fatal(err)
	}

	var out []string

	for _, e := range events.Items {
		if reason == "" {
			e.Message = e.Reason + ": " + e.Message
		}

		out = append(out, e.Message)
	}

	return out
}

// awaitNodeEvent waits for an Event about a Node that is not among those from before.
func (c *Cluster) awaitNodeEvent(t *testing.T, node, reason, text string, before []string) {
	t.Helper()
	within(t, "event "+reason, func() error {
		events := c.nodeEvents(t, node, reason)
		if len(events) > len(before) && slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, text) }) {
			return nil
		}

		return fmt.Errorf("events %q, before %q", events, before)
	})
}

// testVirtualIP: a virtual IP comes to the node's device, and the node's own address goes away for
// seconds and comes back, so that it is the last one of the device. An agent that starts meanwhile
// keeps it too. Pods' connections continue.
func testVirtualIP(t *testing.T, c *Cluster) {
	bothFamilies(t, func(t *testing.T, v6 bool) {
		a := c.ownAddress(v6)
		gone := fmt.Sprintf("the gateway's address %s is gone from %s", a.own, c.Uplink())
		a.isGateways(t, a.own)

		a.ip(t, "add", a.vip)
		defer a.ip(t, "del", a.vip)

		a.isGateways(t, a.own, a.vip)
		a.leavesFrom(t, a.own)
		c.hasFault(t, 1, gone, false)

		defer func() {
			if t.Failed() { // for the other tests
				_, _ = c.Exec(context.Background(), "node1", "ip", "addr", "add", a.own.String(), "dev", c.Uplink())
			}
		}()

		for _, restart := range []bool{false, true} {
			before := c.nodeEvents(t, "node1", "GatewayAddressGone")
			live := c.hold(t, "a pod's connection", host("a"), port(outside(v6), outsidePort), time.Hour)
			c.isConnected(t, live, host("a"), port(outside(v6), outsidePort))
			a.ip(t, "del", a.own)

			if restart {
				c.killAgent(t, 1)
				c.startAgent(t, 1)
			}

			c.hasFault(t, 1, gone, true)
			a.restore(t)
			c.hasFault(t, 1, gone, false)
			a.isGateways(t, a.own, a.vip)
			a.leavesFrom(t, a.own)
			live.stop(t)
			live.held(t)

			if !restart { // the reasons of faults of one minute have one Event
				c.awaitNodeEvent(t, "node1", "GatewayAddressGone", a.own.String(), before)
			}
		}

		c.restartAgent(t, 1)
		a.isGateways(t, a.own, a.vip)
		a.leavesFrom(t, a.own)
	})
}

// testLostAddress: the node's own address is away for longer than the gateway waits. The gateway
// takes the virtual IP and says so, and goes back when the address does.
func testLostAddress(t *testing.T, c *Cluster) {
	a := c.ownAddress(true) // the agent reaches the API server by IPv4
	differs := fmt.Sprintf("the gateway uses %s, because no device of the host has the Node's InternalIP %s", a.vip.Addr(), a.own.Addr())
	before := c.nodeEvents(t, "node1", "GatewayAddressDiffers")

	a.ip(t, "add", a.vip)
	defer a.ip(t, "del", a.vip)

	a.isGateways(t, a.own, a.vip)
	a.ip(t, "del", a.own)
	a.isGateways(t, a.vip)
	c.hasFault(t, 1, differs, true)
	c.awaitNodeEvent(t, "node1", "GatewayAddressDiffers", differs, before)
	a.restore(t)
	a.isGateways(t, a.own, a.vip)
	c.hasFault(t, 1, differs, false)
	a.leavesFrom(t, a.own)
}
