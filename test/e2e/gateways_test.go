package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// TestGateways uses a cluster in which node1 and node2 have pods but no gateway, and node3 and
// node4 a gateway but no pods.
func TestGateways(t *testing.T) {
	if testing.Short() {
		t.Skip(inFull)
	}

	c := start(t, lab.Options{Nodes: 4})
	if c.layout == bridged {
		t.Skip("every agent of this lab has --gateway-layout=bridged, which a node without a gateway refuses")
	}

	for i := range 2 {
		c.removeGateway(t, i+1)
	}

	for i := range 2 {
		if err := c.serve(t.Context(), c.Node(i+3).Name, c.Node(i+3).Name, hostPort); err != nil {
			t.Fatal(err)
		}
	}

	for _, pod := range []string{"a", "c"} {
		c.leavesBy(t, pod, 3, 4)
	}

	t.Run("paths", func(t *testing.T) { testPathsWithoutGateway(t, c) })
	t.Run("masquerade networks", func(t *testing.T) { testMasquerade(t, c) })
	t.Run("pods' tunnels", func(t *testing.T) { c.forgesTunnelPackets(t) })
	t.Run("drain", func(t *testing.T) { testDrain(t, c) })
	t.Run("gateway without its switch", func(t *testing.T) {
		testGatewayDies(t, c, 3, func() error { return c.StopVswitchd(3) }, func() error { return c.StartVswitchd(3) })
	})
	t.Run("gateway cut off", func(t *testing.T) {
		link := func(state string) func() error {
			return func() error {
				_, err := c.Exec(t.Context(), "central", "ip", "link", "set", c.Node(4).Name, state)
				return err
			}
		}
		testGatewayDies(t, c, 4, link("down"), link("up"))
	})
	t.Run("gateways without their agents", func(t *testing.T) { testNoAgents(t, c) })
	t.Run("node with a gateway again", func(t *testing.T) {
		c.restartAgent(t, 1)
		c.leavesBy(t, "a", 1)
		c.leavesBy(t, "c", 1, 3, 4)
	})
}

// removeGateway removes the gateway of a live node.
func (c *Cluster) removeGateway(t *testing.T, i int) { c.restartAgent(t, i, "--gateway-mode=none") }

// restartAgent restarts the agent and waits until it is ready. A cleanup may call it, too.
func (c *Cluster) restartAgent(t *testing.T, i int, args ...string) {
	t.Helper()

	if err := c.StopAgent(i, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	c.startAgent(t, i, args...)

	if err := c.AwaitAgent(context.WithoutCancel(t.Context()), i); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) killAgent(t *testing.T, i int) {
	t.Helper()

	if err := c.StopAgent(i, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// startAgent starts the agent and does not wait until it is ready.
func (c *Cluster) startAgent(t *testing.T, i int, args ...string) {
	t.Helper()

	if err := c.StartAgent(t.Context(), i, args...); err != nil {
		t.Fatal(err)
	}
}

// clientAddresses makes several connections to the outside host and returns the client addresses
// that it saw, sorted.
func (c *Cluster) clientAddresses(t *testing.T, pod string, v6 bool) ([]netip.Addr, error) {
	const requests = 32

	out, err := c.Exec(t.Context(), host(pod), c.traffic("tcp", "-n", strconv.Itoa(requests), "-timeout", "3s", port(outside(v6), outsidePort).String())...)
	if err != nil {
		return nil, fmt.Errorf("%w after %d answers", err, strings.Count(string(out), "\n"))
	}

	var seen []netip.Addr

	for line := range strings.Lines(string(out)) {
		_, client, _ := strings.Cut(strings.TrimSpace(line), " ")

		a, err := netip.ParseAddrPort(client)
		if err != nil {
			return nil, fmt.Errorf("answer %q: %w", line, err)
		}

		if a.Port() < 49152 {
			return nil, fmt.Errorf("the outside host saw %s, with a port outside OVN's range", a)
		}

		seen = append(seen, a.Addr().Unmap())
	}

	slices.SortFunc(seen, netip.Addr.Compare)

	return slices.Compact(seen), nil
}

// leavesBy waits until all of a pod's connections succeed and leave by exactly these nodes.
func (c *Cluster) leavesBy(t *testing.T, pod string, nodes ...int) {
	t.Helper()

	for _, v6 := range []bool{false, true} {
		var want []netip.Addr
		for _, i := range nodes {
			want = append(want, c.node(i)(v6))
		}

		began := time.Now()

		within(t, fmt.Sprintf("pod %s leaves by nodes %v", pod, nodes), func() error {
			seen, err := c.clientAddresses(t, pod, v6)
			if err == nil && !slices.Equal(seen, want) {
				err = fmt.Errorf("it leaves as %v, want %v", seen, want)
			}

			return err
		})
		t.Logf("pod %s leaves by nodes %v (%s): after %.1f s", pod, nodes, Result{V6: v6}.Family(), time.Since(began).Seconds())
	}
}

// testPathsWithoutGateway covers the paths from and to pods and hosts of a node without a gateway.
func testPathsWithoutGateway(t *testing.T, c *Cluster) {
	pod := only(c.pod("a"))
	for _, p := range []*Path{
		{Name: "pod to pod, one node", From: host("a"), To: c.pod("b"), Port: podPort, Server: "b", Client: pod},
		{Name: "pod to pod, across nodes", From: host("a"), To: c.pod("c"), Port: podPort, Server: "c", Client: pod},
		{Name: "pod to its own node", From: host("a"), To: c.node(1), Port: hostPort, Server: "node1", Client: pod},
		{Name: "pod to another node", From: host("a"), To: c.node(2), Port: hostPort, Server: "node2", Client: pod},
		{Name: "pod to the host of a gateway", From: host("a"), To: c.node(3), Port: hostPort, Server: "node3", Client: pod},
		{Name: "pod to cluster IP", From: host("b"), To: c.cluster("web"), Port: servicePort, Server: "a,c", Client: only(c.pod("b"))},
		{Name: "pod to a host by cluster IP", From: host("c"), To: c.cluster("host"), Port: servicePort, Server: "node1", Client: only(c.pod("c"))},
		{Name: "host to pod", From: "node1", To: c.pod("a"), Port: podPort, Server: "a"},
		{Name: "host to pod on another node", From: "node1", To: c.pod("c"), Port: podPort, Server: "c"},
		{Name: "host of a gateway to pod", From: "node3", To: c.pod("c"), Port: podPort, Server: "c"},
		{Name: "host to cluster IP", From: "node1", To: c.cluster("web"), Port: servicePort, Server: "a,c"},
		{Name: "host to outside", From: "node1", To: outside, Port: outsidePort, Server: "ext", Client: only(c.node(1))},
		{Name: "outside to host", From: "ext", To: c.node(1), Port: hostPort, Server: "node1", Client: only(outside)},
		{Name: "outside to a NodePort of a gateway", From: "ext", To: c.node(3), Port: nodePort, Server: "a,c"},
	} {
		t.Run(p.Name, func(t *testing.T) {
			for _, v6 := range []bool{false, true} {
				for _, protocol := range []string{"tcp", "udp"} {
					target := port(p.To(v6), p.Port).String()

					out, err := c.Exec(t.Context(), p.From, c.traffic(protocol, "-n", "10", target)...)
					if err != nil || strings.Count(string(out), "\n") != 10 {
						t.Errorf("%s to %s: %v: %s", protocol, target, err, out)
						continue
					}

					for line := range strings.Lines(string(out)) {
						if err := p.checkReply(strings.TrimSpace(line), v6); err != nil {
							t.Errorf("%s to %s: %v", protocol, target, err)
						}
					}
				}
			}
		})
	}
}

// testGatewayDies: pings and new connections move to the other gateway, and use both after its
// return.
func testGatewayDies(t *testing.T, c *Cluster, i int, stop, begin func() error) {
	pings := c.pingsOn(t)
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	other := 7 - i
	c.leavesBy(t, "a", other)
	c.leavesBy(t, "c", other)

	for _, p := range pings {
		p.goesOn(t)
	}

	if err := begin(); err != nil {
		t.Fatal(err)
	}

	c.leavesBy(t, "a", 3, 4)
	c.leavesBy(t, "c", 3, 4)

	for _, p := range pings {
		p.goesOn(t)
		t.Log(p.gap(t))
	}
}

// testNoAgents: a gateway with a long dead agent is avoided. If no agent answers, all gateways are
// used. Only the change of gateway may cost packets.
func testNoAgents(t *testing.T, c *Cluster) {
	pings := c.pingsOn(t)
	if err := c.StopAgent(3, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	c.leavesBy(t, "a", 4)

	if err := c.StopAgent(4, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	c.leavesBy(t, "a", 3, 4)

	for _, i := range []int{3, 4} {
		if err := c.StartAgent(t.Context(), i); err != nil {
			t.Fatal(err)
		}

		if err := c.AwaitAgent(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}

	c.leavesBy(t, "c", 3, 4)

	for _, p := range pings {
		p.goesOn(t)

		if gap := p.longest(t); gap > 5 {
			t.Errorf("%s: %d in a row unanswered, though both gateways worked", p.name, gap)
		}

		t.Log(p.gap(t))
	}
}

// pingsOn starts pings of both families from both nodes.
func (c *Cluster) pingsOn(t *testing.T) []*pinging {
	t.Helper()

	var pings []*pinging

	for _, pod := range []string{"a", "c"} {
		for _, v6 := range []bool{false, true} {
			pings = append(pings, c.pingOn(t, pod, outside(v6)))
		}
	}

	for _, p := range pings {
		p.goesOn(t)
	}

	return pings
}

// pinging is a ping that logs each reply to a file.
type pinging struct {
	c    *Cluster
	name string
	log  string
}

const pingEvery = 200 * time.Millisecond

// pingOn starts a ping, which ends with the test.
func (c *Cluster) pingOn(t *testing.T, pod string, to netip.Addr) *pinging {
	t.Helper()
	p := &pinging{c: c, name: "ping from " + pod + " to " + to.String(), log: filepath.Join(t.TempDir(), "ping")}
	c.run(t, p.name, host(pod), "sh", "-c", fmt.Sprintf("exec ping -n -D -i %.1f %s >%s 2>&1", pingEvery.Seconds(), to, p.log))

	return p
}

// answered returns the sequence numbers of the replies so far.
func (p *pinging) answered(t *testing.T) []int {
	t.Helper()

	var out []int

	for line := range strings.Lines(readFile(t, p.log)) {
		if _, rest, found := strings.Cut(line, "icmp_seq="); found && strings.Contains(line, "bytes from") {
			number, _, _ := strings.Cut(rest, " ")

			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatalf("%s: %q", p.name, line)
			}

			out = append(out, n)
		}
	}

	return out
}

// goesOn waits for three more replies.
func (p *pinging) goesOn(t *testing.T) {
	t.Helper()
	before := len(p.answered(t))
	within(t, p.name, func() error {
		if len(p.answered(t)) < before+3 {
			return errors.New("no new replies")
		}

		return nil
	})
}

// longest returns the largest number of consecutive missing replies.
func (p *pinging) longest(t *testing.T) int {
	t.Helper()

	longest, last := 0, 0
	for _, n := range p.answered(t) {
		longest, last = max(longest, n-last-1), n
	}

	return longest
}

// gap describes the longest time without a reply.
func (p *pinging) gap(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%s: at most %.1f s without an answer", p.name, (time.Duration(p.longest(t)) * pingEvery).Seconds())
}

func readFile(t *testing.T, path string) string {
	t.Helper()

	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}

	return string(b)
}
