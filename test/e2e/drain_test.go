package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testDrain: after an operator drains node4's gateway, traffic of pods on nodes without a gateway
// leaves by the other one, without a lost ping, and later returns. Inbound connections through
// node4 survive.
func testDrain(t *testing.T, c *Cluster) {
	if err := c.addPod(t.Context(), "g", "node4"); err != nil {
		t.Fatal(err)
	}

	local := func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }

	svc, err := c.AddService(t.Context(), lab.ServiceSpec{
		Name: "drained", Type: corev1.ServiceTypeLoadBalancer, Ports: servicePorts(podPort, kindLocalNodePort), Pods: []*lab.Pod{c.Pods["g"]}, Change: local,
	})
	if err != nil {
		t.Fatal(err)
	}

	c.loadBalancerGets(t, svc, 200, 200)
	pings := c.pingsOn(t)
	inbound := c.hold(t, "connection that came in by node4", "ext", port(c.node(4)(false), nodePort), time.Hour)

	out := c.node4s(t, "drain-gateway", "node4")
	for _, want := range []string{"gateway of node4 is drained", "done: pods on node1, node2 leave by other gateways"} {
		if !strings.Contains(out, want) {
			t.Errorf("drain-gateway says %q, not %q", out, want)
		}
	}

	for _, pod := range []string{"a", "c"} {
		c.leavesBy(t, pod, 3)
	}

	c.loadBalancerGets(t, svc, 503, 503)
	c.saysDrained(t, true)
	t.Run("controller restarted", func(t *testing.T) {
		if err := c.StopController(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}

		if err := c.StartController(t.Context()); err != nil {
			t.Fatal(err)
		}

		if err := c.AwaitController(t.Context()); err != nil {
			t.Fatal(err)
		}

		c.leavesBy(t, "a", 3)
	})
	t.Run("the last one", func(t *testing.T) {
		_, err := c.operator(t, "drain-gateway", "node3")
		if err == nil || !strings.Contains(err.Error(), "it is the last gateway: pods on node1, node2 have none of their own") {
			t.Errorf("drain-gateway node3: %v", err)
		}
	})

	c.node4s(t, "undrain-gateway", "node4")

	for _, pod := range []string{"a", "c"} {
		c.leavesBy(t, pod, 3, 4)
	}

	c.loadBalancerGets(t, svc, 200, 200)
	c.saysDrained(t, false)

	for _, p := range pings {
		p.goesOn(t)
		t.Log(p.gap(t))
	}

	inbound.stop(t)
	inbound.held(t)
	c.leave(t, svc)
}

// leave removes the objects of testDrain.
func (c *Cluster) leave(t *testing.T, svc *corev1.Service) {
	t.Helper()

	if err := c.DelService(t.Context(), svc.Namespace, svc.Name); err != nil {
		t.Error(err)
	}

	if err := c.DelPod(t.Context(), c.Pods["g"]); err != nil {
		t.Error(err)
	}
}

// operator runs an ovnkube node command as an operator with a kubeconfig.
func (c *Cluster) operator(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := c.Exec(t.Context(), "central", append([]string{c.Binary("ovnkube"), "node"}, append(args, "--kubeconfig", c.Kubeconfig())...)...)

	return string(out), err
}

func (c *Cluster) node4s(t *testing.T, args ...string) string {
	t.Helper()

	out, err := c.operator(t, args...)
	if err != nil {
		t.Fatalf("ovnkube node %v: %v: %s", args, err, out)
	}

	t.Log(out)

	return out
}

// loadBalancerGets waits for these responses of node4's health checks, of the Service and of the
// node.
func (c *Cluster) loadBalancerGets(t *testing.T, svc *corev1.Service, service, proxy int) {
	t.Helper()

	client, err := c.Client("ext")
	if err != nil {
		t.Fatal(err)
	}

	for at, want := range map[uint16]int{uint16(svc.Spec.HealthCheckNodePort): service, 10256: proxy} {
		url := fmt.Sprintf("http://%s/healthz", netip.AddrPortFrom(c.Node(4).IP4, at))
		within(t, fmt.Sprintf("%s answers %d", url, want), func() error {
			res, err := client.Get(url)
			if err != nil {
				return err
			}
			defer res.Body.Close()

			if res.StatusCode != want {
				return fmt.Errorf("it answers %d", res.StatusCode)
			}

			return nil
		})
	}
}

// saysDrained checks the output of ovnkube status on the node.
func (c *Cluster) saysDrained(t *testing.T, drained bool) {
	t.Helper()

	cmd, err := c.Command(t.Context(), "node4", c.Binary("ovnkube"), "status", "--run-dir", c.Node(4).RunDir)
	if err != nil {
		t.Fatal(err)
	}

	out, _ := cmd.Output() // its exit status covers other checks, too
	if !strings.HasPrefix(string(out), "node4: ") || strings.Contains(string(out), "the gateway is drained") != drained {
		t.Errorf("ovnkube status, drained %t:\n%s", drained, out)
	}
}
