package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/loop"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// reported is the time within which a fault, and its end, must be reported.
const reported = 30 * time.Second

// forwardHook begins a chain of another program.
const forwardHook = "type filter hook forward priority filter"

// firewall is another program's firewall on a node.
type firewall struct {
	name   string
	family string // of its table
	chain  string // of the hook
	fault  string // "": pods pass
	v4, v6 bool   // whether pods pass
}

// TestForward: in local gateway mode, another program drops what a node forwards. Status, readiness
// and an Event name its chain until it lets pods pass again. The host is not affected. Both nodes
// have firewalls at the same time.
func TestForward(t *testing.T) {
	if testing.Short() {
		t.Skip(inFull)
	}

	c := start(t, lab.Options{AgentArgs: []string{"--gateway-mode=local"}})
	t.Run("nodes", func(t *testing.T) {
		t.Run("node1", func(t *testing.T) {
			t.Parallel()

			n := forwarder{c, 1, "a"}
			n.reportsFirewalls(t, []firewall{
				{"policy of a chain of ip", "ip", forwardHook + "; policy drop", "IPv4 packets of pods are dropped by ip fw filtered (policy drop): pods reach no other network", false, true},
				{"policy of a chain of inet", "inet", forwardHook + "; policy drop", "IPv4 and IPv6 packets of pods are dropped by inet fw filtered (policy drop)", false, false},
			})
			t.Run("without an agent, and before it starts", n.reportsAtStart)
			t.Run("shared gateway mode", n.isQuietWhenShared)
		})
		t.Run("node2", func(t *testing.T) {
			t.Parallel()

			n := forwarder{c, 2, "c"}
			n.reportsFirewalls(t, []firewall{
				{"policy of a chain of ip6", "ip6", forwardHook + "; policy drop", "IPv6 packets of pods are dropped by ip6 fw filtered (policy drop)", true, false},
				{
					"last rule rejects, as with firewalld", "inet", forwardHook + " + 10; policy accept; ct state established,related accept; ct status dnat accept; iifname lo accept; ct state invalid drop; reject with icmpx admin-prohibited",
					"IPv4 and IPv6 packets of pods are dropped by inet fw filtered (rule reject with icmpx admin-prohibited)", false, false,
				},
				{"management port is accepted", "inet", forwardHook + "; policy drop; iifname ovn-k8s-mp0 accept; oifname ovn-k8s-mp0 accept", "", true, true},
				{"only what pods send is accepted", "inet", forwardHook + "; policy drop; iifname ovn-k8s-mp0 accept", "IPv4 and IPv6 replies to pods are dropped by inet fw filtered (policy drop)", false, false},
			})
			t.Run("others remove the agent's rules", n.isRestored)
		})
	})
}

// forwarder is a node in local gateway mode and one of its pods.
type forwarder struct {
	*Cluster
	node int
	pod  string
}

func (n forwarder) name() string { return n.Node(n.node).Name }

func (n forwarder) add(t *testing.T, f firewall) {
	t.Helper()
	n.execute(t, n.name(), "nft", fmt.Sprintf("table %s fw { chain filtered { %s; }; }", f.family, f.chain))
}

func (n forwarder) remove(t *testing.T, f firewall) {
	t.Helper()
	n.execute(t, n.name(), "nft", "delete table "+f.family+" fw")
}

// reportsFirewalls adds and removes firewalls, one after the other.
func (n forwarder) reportsFirewalls(t *testing.T, all []firewall) {
	n.passes(t, true, true)

	for i, f := range all {
		t.Run(f.name, func(t *testing.T) {
			before := n.nodeEvents(t, n.name(), "ForwardDropped")

			n.add(t, f)
			defer n.asks(t)()

			n.passes(t, f.v4, f.v6)

			if f.fault == "" {
				n.awaitProbes(t)
				n.isQuiet(t)
			} else {
				n.reports(t, f.fault, true)

				if i == 0 { // the next Event of the reason may be a minute later
					n.awaitNodeEvent(t, n.name(), "ForwardDropped", f.fault, before)
				}
			}

			n.remove(t, f)

			if f.fault != "" {
				n.reports(t, f.fault, false)
				n.isQuiet(t)
			}

			n.passes(t, true, true)
		})
	}
}

// asks makes the pod connect to another network until stop is called.
func (n forwarder) asks(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())

	var group sync.WaitGroup
	for _, v6 := range []bool{false, true} {
		group.Go(func() {
			for ctx.Err() == nil {
				_, _ = n.Exec(ctx, host(n.pod), n.traffic("tcp", port(outside(v6), outsidePort).String(), "-timeout", "2s")...)
				_ = loop.Pause(ctx, time.Second)
			}
		})
	}

	return func() {
		cancel()
		group.Wait()
	}
}

// reportsAtStart has a firewall while no agent runs.
func (n forwarder) reportsAtStart(t *testing.T) {
	f := firewall{family: "inet", chain: forwardHook + "; policy drop"}

	const fault = "IPv4 and IPv6 packets of pods are dropped by inet fw filtered (policy drop)"

	n.killAgent(t, n.node)
	n.add(t, f)

	out, _ := n.Exec(t.Context(), n.name(), n.Binary("ovnkube"), "status", "--run-dir", n.Node(n.node).RunDir) // it exits with an error
	if !strings.Contains(string(out), fault) {
		t.Errorf("status without an agent: %s, want %q", out, fault)
	}

	n.startAgent(t, n.node)

	if err := n.AwaitAgent(t.Context(), n.node); err != nil {
		t.Fatal(err)
	}

	n.reports(t, fault, true)
	n.remove(t, f)
	n.reports(t, fault, false)
	n.isQuiet(t)
	n.passes(t, true, true)
}

// isRestored has the node's rules removed by others. The agent notices that when it probes.
func (n forwarder) isRestored(t *testing.T) {
	n.awaitProbes(t)
	n.execute(t, n.name(), "nft", "flush", "ruleset")

	begun := time.Now()

	n.passes(t, true, true)

	if took := time.Since(begun); took > reported {
		t.Errorf("pods reach other networks after %s, want at most %s", took, reported)
	}

	n.isQuiet(t)
}

// isQuietWhenShared has a firewall in shared gateway mode, where the host forwards nothing of pods.
func (n forwarder) isQuietWhenShared(t *testing.T) {
	f := firewall{family: "inet", chain: forwardHook + "; policy drop"}

	n.reconfigureAgent(t, "--gateway-mode=shared")
	n.add(t, f)
	n.passes(t, true, true)
	n.isQuiet(t)
	n.remove(t, f)
}

// passes checks whether a pod of the node reaches another network in each family. Its host always
// does.
func (n forwarder) passes(t *testing.T, v4, v6 bool) {
	t.Helper()

	for _, want := range []struct{ v6, passes bool }{{false, v4}, {true, v6}} {
		to := port(outside(want.v6), outsidePort)
		if err := n.ask(t, n.name(), to); err != nil {
			t.Errorf("host to %s: %v", to, err)
		}

		if want.passes {
			within(t, fmt.Sprintf("pod %s reaches %s", n.pod, to), func() error { return n.ask(t, host(n.pod), to) })
		} else if err := isUnanswered(n.ask(t, host(n.pod), to)); err != nil {
			t.Errorf("pod %s to %s: %v", n.pod, to, err)
		}
	}
}

// reports waits until the node reports the fault, or no longer does, and checks the time that it
// takes.
func (n forwarder) reports(t *testing.T, fault string, present bool) {
	t.Helper()

	begun := time.Now()

	n.hasFault(t, n.node, fault, present)

	took := time.Since(begun).Round(100 * time.Millisecond)
	if took > reported {
		t.Errorf("fault %q, present %t: after %s, want at most %s", fault, present, took, reported)
	}

	t.Logf("fault %q, present %t: after %s", fault, present, took)
}

// isQuiet checks that the node reports no dropped packets.
func (n forwarder) isQuiet(t *testing.T) {
	t.Helper()

	if _, body, err := n.readyz(n.name()); err != nil || strings.Contains(body, "dropped by") {
		t.Errorf("readyz: %s (%v)", body, err)
	}
}

// awaitProbes waits until the node has sent probes of both families twice.
func (n forwarder) awaitProbes(t *testing.T) {
	t.Helper()

	counted := func() string {
		return n.execute(t, n.name(), "nft", "list", "counter", "inet", "ovn_ebpf", "probes_leave_ip6")
	}
	for range 2 {
		before := counted()

		within(t, "a probe", func() error {
			if now := counted(); now == before {
				return fmt.Errorf("counter %s", now)
			}

			return nil
		})
	}
}
