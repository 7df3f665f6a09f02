package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/agent/environment"
	"github.com/ovn-ebpf/ovn-ebpf/agent/ovs"
	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

const (
	affinityNodePort = 30095
	affinityTimeout  = 2 * time.Second
	// affinityPause is longer than the timeout, and than Open vSwitch takes to remove a learned
	// flow.
	affinityPause = affinityTimeout + 1500*time.Millisecond
	// affinityAnswer is the longest wait for an answer. Clients repeat a lost SYN after a second.
	affinityAnswer = 500 * time.Millisecond
)

// sticky makes clients keep their endpoint.
func sticky(s *corev1.ServiceSpec) {
	timeout := int32(affinityTimeout.Seconds())
	s.SessionAffinity = corev1.ServiceAffinityClientIP
	s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
}

// frontend is an address of a Service by family, as seen from a client.
type frontend struct {
	from string
	to   func(v6 bool) netip.Addr
	port uint16
}

// client is one client of a frontend.
type client struct {
	from, protocol string
	to             netip.AddrPort
}

func (c client) String() string { return c.protocol + " from " + c.from + " to " + c.to.String() }

func (f frontend) clients() []client {
	var list []client

	for _, v6 := range []bool{false, true} {
		for _, protocol := range []string{"tcp", "udp"} {
			list = append(list, client{f.from, protocol, port(f.to(v6), f.port)})
		}
	}

	return list
}

// server makes a few requests, one after another, and returns the server of all. It returns an
// error if a request is not answered at once, or if the servers differ. No request is repeated.
func (c *Cluster) server(t *testing.T, from client, servers ...string) (string, error) {
	t.Helper()

	out, err := c.Exec(t.Context(), from.from, c.traffic(from.protocol, "-n", "5", "-timeout", affinityAnswer.String(), from.to.String())...)
	if err != nil {
		return "", err
	}

	var names []string

	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		names = append(names, name)
	}

	if len(names) != 5 || len(slices.Compact(slices.Clone(names))) != 1 || !slices.Contains(servers, names[0]) {
		return "", fmt.Errorf("answered by %q, want 5 answers by one of %v", names, servers)
	}

	return names[0], nil
}

// keepsAffinity checks that clients keep their server, until they have been idle for longer than
// the timeout. Then they may get another one, and are answered as fast.
func (c *Cluster) keepsAffinity(t *testing.T, frontends []frontend, servers ...string) {
	t.Helper()

	for _, f := range frontends {
		for _, from := range f.clients() {
			within(t, from.String(), func() error {
				_, err := c.server(t, from, servers...)
				return err
			})
		}
	}

	was, moved := map[client]string{}, map[string]bool{}

	enough := func(round int) bool { return len(servers) == 1 || len(moved) == len(frontends) || round == 12 }
	for round := 0; round < 2 || !enough(round); round++ {
		time.Sleep(affinityPause)

		for _, f := range frontends {
			for _, from := range f.clients() {
				now, err := c.server(t, from, servers...)
				if err != nil {
					t.Fatalf("%s, idle for %s: %v", from, affinityPause, err)
				}

				if was[from] != "" && was[from] != now {
					moved[f.from] = true
				}

				was[from] = now
			}
		}
	}

	for _, f := range frontends {
		if !moved[f.from] && len(servers) > 1 {
			t.Errorf("%s has the same servers every time: %v", f.from, was)
		}
	}
}

// answersAfterPause checks that each client, idle for longer than the timeout, is answered at once.
func (c *Cluster) answersAfterPause(t *testing.T, when string, frontends []frontend, servers ...string) {
	t.Helper()
	time.Sleep(affinityPause)

	for _, f := range frontends {
		for _, from := range f.clients() {
			if _, err := c.server(t, from, servers...); err != nil {
				t.Errorf("%s: %s: %v", when, from, err)
			}
		}
	}
}

// losesNoPackets checks that no readyz, status or Event has a fault of session affinity.
func (c *Cluster) losesNoPackets(t *testing.T) {
	t.Helper()

	for _, n := range c.Nodes() {
		code, body, err := c.readyz(n.Name)
		if err != nil || code != http.StatusOK || strings.Contains(body, "sessionAffinity") {
			t.Errorf("readyz of %s: %d %q, %v", n.Name, code, body, err)
		}

		out, err := c.Exec(t.Context(), n.Name, c.Binary("ovnkube"), "status", "--run-dir", n.RunDir)
		if strings.Contains(string(out), "sessionAffinity") {
			t.Errorf("status of %s: %s: %v", n.Name, out, err)
		}

		if events := c.nodeEvents(t, n.Name, environment.AffinityLosesPackets); len(events) > 0 {
			t.Errorf("Events about %s: %q", n.Name, events)
		}
	}
}

// affinityFlows returns the number of the agent's flows on node1's br-int.
func (c *Cluster) affinityFlows(ctx context.Context) (int, error) {
	first, others, err := ovs.OwnFlows(ctx, c.Node(1).RunDir, ovs.IntegrationBridge)
	if err == nil && first > 0 {
		err = fmt.Errorf("%d flows in the first table", first)
	}

	return others, err
}

// hasAffinityFlows waits until the agent has written its flows, and returns how long it took.
func (c *Cluster) hasAffinityFlows(t *testing.T, when string) time.Duration {
	t.Helper()

	begin := time.Now()

	within(t, when+": flows on br-int", func() error {
		n, err := c.affinityFlows(t.Context())
		if err == nil && n < 7 { // two for each of a switch and a router, and three
			err = fmt.Errorf("%d flows", n)
		}

		return err
	})

	return time.Since(begin)
}

// testAffinity: a client keeps its endpoint, until it has been idle for longer than the timeout.
func testAffinity(t *testing.T, c *Cluster) {
	to := c.cluster("sticky")
	c.keepsAffinity(t, []frontend{{host("b"), to, servicePort}, {"ext", c.gateway(1), kindStickyNodePort}, {"node3", to, servicePort}}, "a", "c")
}

// testSessionAffinity: the first packet of a client is not lost, on any path to a Service.
func testSessionAffinity(t *testing.T, c *Cluster) {
	c.losesNoPackets(t)
	c.tempService(t, lab.ServiceSpec{
		Name: "affine", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, affinityNodePort),
		Pods: []*lab.Pod{c.Pods["a"], c.Pods["c"]}, Change: sticky,
	})
	to := c.cluster("affine")
	c.keepsAffinity(t, []frontend{{host("b"), to, servicePort}, {"ext", c.gateway(1), affinityNodePort}, {"node1", to, servicePort}}, "a", "c")
	c.losesNoPackets(t)
}

// testAffinityRestarts: the first packet of a client is not lost while the agent is away, nor after
// restarts of ovn-controller and ovs-vswitchd, nor after a change of endpoints, nor with traffic
// policies. The agent's flows end with the last Service.
func testAffinityRestarts(t *testing.T, c *Cluster) {
	spec := lab.ServiceSpec{
		Name: "affine", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, affinityNodePort),
		Pods: []*lab.Pod{c.Pods["a"], c.Pods["c"]}, Change: sticky,
	}
	c.tempService(t, spec)
	frontends := []frontend{{host("b"), c.cluster("affine"), servicePort}, {"ext", c.gateway(1), affinityNodePort}}
	c.keepsAffinity(t, frontends, "a", "c")

	if err := c.StopAgent(1, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	c.answersAfterPause(t, "without the agent", frontends, "a", "c")
	c.startAgent(t, 1)

	if err := c.AwaitAgent(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	c.answersAfterPause(t, "with the next agent", frontends, "a", "c")

	again, err := c.Kill("node1-ovn-controller")
	if err != nil {
		t.Fatal(err)
	}

	c.answersAfterPause(t, "without ovn-controller", frontends, "a", "c")

	if err := again(); err != nil {
		t.Fatal(err)
	}

	c.returns(t, frontends, "a", "c")
	c.answersAfterPause(t, "with the next ovn-controller", frontends, "a", "c")

	if err := c.StopVswitchd(1); err != nil {
		t.Fatal(err)
	}

	if err := c.StartVswitchd(1); err != nil {
		t.Fatal(err)
	}

	c.returns(t, frontends, "a", "c")
	c.answersAfterPause(t, "with the next ovs-vswitchd", frontends, "a", "c")

	spec.Pods = []*lab.Pod{c.Pods["c"]}
	if err := c.SetEndpoints(t.Context(), c.Services["affine"], spec); err != nil {
		t.Fatal(err)
	}

	c.keepsAffinity(t, frontends, "c")

	c.tempService(t, lab.ServiceSpec{
		Name: "affine-local", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, affinityNodePort+1),
		Pods: []*lab.Pod{c.Pods["a"], c.Pods["c"]}, Change: func(s *corev1.ServiceSpec) {
			sticky(s)

			near := corev1.ServiceInternalTrafficPolicyLocal
			s.InternalTrafficPolicy, s.ExternalTrafficPolicy = &near, corev1.ServiceExternalTrafficPolicyLocal
		},
	})
	local := []frontend{{host("b"), c.cluster("affine-local"), servicePort}, {"ext", c.gateway(1), affinityNodePort + 1}}
	c.keepsAffinity(t, local, "a")
	c.losesNoPackets(t)

	for _, name := range []string{"affine", "affine-local"} {
		if err := c.DelService(t.Context(), "default", name); err != nil {
			t.Fatal(err)
		}

		delete(c.Services, name)
	}

	within(t, "no flows on br-int", func() error {
		n, err := c.affinityFlows(t.Context())
		if err == nil && n > 0 {
			err = fmt.Errorf("%d flows", n)
		}

		return err
	})
}

// returns waits until the Service is served again, after flows were lost.
func (c *Cluster) returns(t *testing.T, frontends []frontend, servers ...string) {
	t.Helper()
	// A new ovn-controller first deletes all flows, and with them those that clients have caused.
	c.execute(t, "central", "ovn-nbctl", "--db="+c.NBAddress(), "--wait=hv", "--timeout=60", "sync")
	t.Logf("flows on br-int after %s", c.hasAffinityFlows(t, "after a restart"))

	for _, f := range frontends {
		for _, from := range f.clients() {
			within(t, from.String(), func() error {
				_, err := c.server(t, from, servers...)
				return err
			})
		}
	}
}
