package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

func testClusterIP(t *testing.T, c *Cluster) {
	for _, from := range []string{host("b"), host("d"), "node1", "node3"} {
		c.sees(t, from, c.cluster("many"), servicePort, "a,c")
	}
	// Only pod a serves the second port, so c refuses.
	c.sees(t, host("a"), c.cluster("self"), servicePort, "a") // to itself

	for _, v6 := range []bool{false, true} {
		within(t, "a second port", func() error {
			out, err := c.Exec(t.Context(), host("d"), c.traffic("tcp", netip.AddrPortFrom(c.cluster("many")(v6), 81).String())...)
			if err == nil && !strings.HasPrefix(string(out), "second ") {
				err = fmt.Errorf("answered by %q", out)
			}

			return err
		})
	}
}

func testNodePort(t *testing.T, c *Cluster) {
	for node := range 3 {
		c.sees(t, "ext", c.gateway(node+1), kindNodePort, "a,c")
	}

	for _, from := range []string{host("d"), "node1", "node3"} {
		c.sees(t, from, c.gateway(2), kindNodePort, "a,c")
	}
}

func testAddresses(t *testing.T, c *Cluster) {
	for _, from := range []string{"ext", host("b"), host("d"), "node3"} {
		c.sees(t, from, kindVIP(20), servicePort, "a,c")
		c.sees(t, from, kindVIP(21), servicePort, "a,c")
	}

	for _, port := range c.Services["balanced"].Spec.Ports {
		if port.NodePort != 0 {
			t.Errorf("port %s has node port %d, want none", port.Name, port.NodePort)
		}
	}
}

// testHeadless: a headless service has no frontends; its pods are reached by their own addresses.
func testHeadless(t *testing.T, c *Cluster) {
	c.sees(t, host("d"), c.pod("a"), podPort, "a")

	out := c.execute(t, "central", "ovn-nbctl", "--db="+c.NBAddress(), "--bare", "--columns=name", "find", "Load_Balancer", "external_ids:k8s.ovn.org/owner=default/headless")
	if strings.TrimSpace(out) != "" {
		t.Errorf("load balancers %q", out)
	}
}

func testManual(t *testing.T, c *Cluster) {
	for _, from := range []string{host("b"), host("d"), "node2"} {
		c.sees(t, from, c.cluster("manual"), servicePort, "ext")
	}
}

func testOneFamily(t *testing.T, c *Cluster) {
	if ips := c.Services["single"].Spec.ClusterIPs; len(ips) != 1 {
		t.Fatalf("cluster IPs %v", ips)
	}

	c.seesOne(t, host("d"), "tcp", netip.AddrPortFrom(c.cluster("single")(false), servicePort), "a")
}

// testExternalLocal: clients outside reach only the node's own endpoints, which see the client's
// address; clients inside reach all. The health check informs load balancers.
func testExternalLocal(t *testing.T, c *Cluster) {
	c.sees(t, "ext", c.gateway(1), kindLocalNodePort, "a")
	c.sees(t, "ext", c.gateway(2), kindLocalNodePort, "c")
	c.sees(t, "ext", c.gateway(3), kindLocalNodePort, refused)
	c.sees(t, "ext", kindVIP(22), servicePort, "a") // routed by node1

	for _, from := range []string{host("d"), "node3"} {
		c.sees(t, from, kindVIP(22), servicePort, "a,c")
		c.sees(t, from, c.cluster("out"), servicePort, "a,c")
	}

	for _, v6 := range []bool{false, true} {
		out := c.execute(t, "ext", c.traffic("tcp", netip.AddrPortFrom(c.gateway(1)(v6), kindLocalNodePort).String())...)
		if client := outside(v6).String(); !strings.Contains(out, client) {
			t.Errorf("pod a saw %q, want the client %s", out, client)
		}
	}

	check := c.Services["out"].Spec.HealthCheckNodePort

	for node, want := range []string{"200 default/out 1 true", "200 default/out 1 true", "503 default/out 0 true"} {
		within(t, fmt.Sprintf("health check of node%d", node+1), func() error {
			if got := c.health(t, fmt.Sprintf("http://%s", netip.AddrPortFrom(c.Node(node+1).IP4, uint16(check)))); got != want {
				return fmt.Errorf("%s, want %s", got, want)
			}

			return nil
		})
	}

	client, err := c.Client("ext")
	if err != nil {
		t.Fatal(err)
	}

	fetch(t, client, fmt.Sprintf("http://%s/healthz", netip.AddrPortFrom(c.Node(3).IP4, 10256)))
}

// health queries a health check from outside.
func (c *Cluster) health(t *testing.T, url string) string {
	client, err := c.Client("ext")
	if err != nil {
		t.Fatal(err)
	}

	res, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()

	var body struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return err.Error()
	}

	if weight := res.Header.Get("X-Load-Balancing-Endpoint-Weight"); weight != fmt.Sprint(body.LocalEndpoints) {
		return "weight " + weight
	}

	return fmt.Sprintf("%d %s/%s %d %t", res.StatusCode, body.Service.Namespace, body.Service.Name, body.LocalEndpoints, body.ServiceProxyHealthy)
}

func testInternalLocal(t *testing.T, c *Cluster) {
	for from, want := range map[string]string{
		host("a"): "b", "node1": "b", host("c"): "c", "node2": "c", host("d"): refused, "node3": refused,
	} {
		c.sees(t, from, c.cluster("in"), servicePort, want)
	}
}

// testNoEndpoints: a service without endpoints refuses connections at once.
func testNoEndpoints(t *testing.T, c *Cluster) {
	for _, from := range []string{host("b"), "node2"} {
		c.sees(t, from, c.cluster("idle"), servicePort, refused)
	}

	for _, from := range []string{"ext", host("d"), "node3"} {
		c.sees(t, from, c.gateway(1), kindIdleNodePort, refused)
	}
}

func testNotReady(t *testing.T, c *Cluster) {
	for _, from := range []string{host("d"), "node1"} {
		c.sees(t, from, c.cluster("early"), servicePort, "a")
		c.sees(t, from, c.cluster("late"), servicePort, refused)
	}
}

// testLeaving: a terminating endpoint is used only if there is no other: of the service, or with
// the policy Local on the node.
func testLeaving(t *testing.T, c *Cluster) {
	for _, from := range []string{host("d"), "node1"} {
		c.sees(t, from, c.cluster("leaving"), servicePort, "c")
	}

	c.sees(t, "ext", c.gateway(1), kindLeavingNodePort, "a")
	c.sees(t, "ext", c.gateway(2), kindLeavingNodePort, "c")

	spec := lab.ServiceSpec{Pods: []*lab.Pod{c.Pods["a"]}, Each: c.leaves("a")}
	if err := c.SetEndpoints(t.Context(), c.Services["leaving"], spec); err != nil {
		t.Fatal(err)
	}

	for _, from := range []string{host("d"), "node1"} {
		c.sees(t, from, c.cluster("leaving"), servicePort, "a")
	}
}

func testHostEndpoints(t *testing.T, c *Cluster) {
	for _, from := range []string{host("b"), host("d"), "node1", "node3"} {
		c.sees(t, from, c.cluster("hosts"), servicePort, "node1,node2")
	}

	for node := range 3 {
		c.sees(t, "ext", c.gateway(node+1), kindHostNodePort, "node1,node2")
	}
}

// testHints: nodes with an endpoint of their own use only that one, other nodes use all.
func testHints(t *testing.T, c *Cluster) {
	for from, want := range map[string]string{
		host("b"): "a", "node1": "a", host("c"): "c", "node2": "c", host("d"): "a,c", "node3": "a,c",
	} {
		c.sees(t, from, c.cluster("hinted"), servicePort, want)
	}
}

// testClash: two services claim one address and port. The older one gets it. The younger one gets
// an event, and the address after the older one's deletion.
func testClash(t *testing.T, c *Cluster) {
	c.sees(t, "ext", kindVIP(23), servicePort, "a")
	time.Sleep(1100 * time.Millisecond) // ages are in seconds

	second := lab.ServiceSpec{Name: "a-second", Ports: servicePorts(podPort, 0), Pods: []*lab.Pod{c.Pods["c"]}, Change: func(s *corev1.ServiceSpec) {
		s.ExternalIPs = []string{kindVIP(23)(false).String(), kindVIP(23)(true).String()}
	}}
	if err := c.addService(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	c.waitForEvent(t, "a-second", "service default/first has it")
	c.sees(t, host("d"), c.cluster("a-second"), servicePort, "c")

	for _, from := range []string{"ext", host("d"), "node3"} {
		c.sees(t, from, kindVIP(23), servicePort, "a")
	}

	if err := c.DelService(t.Context(), "default", "first"); err != nil {
		t.Fatal(err)
	}

	for _, from := range []string{"ext", host("d"), "node3"} {
		c.sees(t, from, kindVIP(23), servicePort, "c")
	}
}
