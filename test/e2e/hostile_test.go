package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// unanswered is an address of no network of the lab.
var unanswered = netip.MustParseAddr("203.0.113.99")

// waitForEvent waits for a NotServed Event about an object of the namespace default.
func (c *Cluster) waitForEvent(t *testing.T, name, text string) {
	t.Helper()

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	within(t, "an event about "+name, func() error {
		events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}

		var said []string

		for _, e := range events.Items {
			if e.Reason == "NotServed" && strings.Contains(e.Message, text) {
				return nil
			}

			said = append(said, e.Reason+": "+e.Message)
		}

		return fmt.Errorf("no event says %q, but: %q", text, said)
	})
}

// tempService adds a Service for the time of the test.
func (c *Cluster) tempService(t *testing.T, s lab.ServiceSpec) *corev1.Service {
	t.Helper()

	if err := c.addService(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if c.Services[s.Name] == nil {
			return
		}

		if err := c.DelService(context.WithoutCancel(t.Context()), "default", s.Name); err != nil {
			t.Error(err)
		}

		delete(c.Services, s.Name)
	})

	return c.Services[s.Name]
}

// testServiceAtNode: Services ask for ports of node1's own addresses, by external IPs and as a load
// balancer. The host keeps its connections, makes new ones, and stays ready. Only new connections
// from outside to a port of the load balancer's are the Service's.
func testServiceAtNode(t *testing.T, c *Cluster) {
	const listens, ephemeral, ephemeralUDP, bound = 8090, 40001, 40002, 8091
	if err := c.serve(t.Context(), "node1", "node1", listens); err != nil {
		t.Fatal(err)
	}

	own := []netip.Addr{c.node(1)(false), c.node(1)(true)}

	var held []*background

	for i, v6 := range []bool{false, true} {
		sport := strconv.Itoa(41000 + i)

		within(t, "host's server", func() error { return c.ask(t, "ext", port(own[i], listens)) })
		in := c.hold(t, "to the host", "ext", port(own[i], listens), time.Hour, "-sport", sport)
		out := c.hold(t, "from the host", "node1", port(outside(v6), outsidePort), time.Hour, "-src", own[i].String(), "-sport", strconv.Itoa(ephemeral))
		datagrams := c.hold(t, "from the host, UDP", "node1", port(outside(v6), outsidePort), time.Hour, "-udp", "-src", own[i].String(), "-sport", strconv.Itoa(ephemeralUDP))
		c.isConnected(t, in, "ext", port(own[i], listens))
		c.isConnected(t, out, "node1", port(outside(v6), outsidePort))
		c.isConnected(t, datagrams, "node1", port(outside(v6), outsidePort))
		held = append(held, in, out, datagrams)
	}

	ports := func() []corev1.ServicePort {
		var out []corev1.ServicePort
		for _, p := range []int32{listens, ephemeral, ephemeral + 2, bound} {
			out = append(out, corev1.ServicePort{Name: fmt.Sprint("t", p), Port: p, TargetPort: intstr.FromInt32(podPort)})
		}

		return append(out, corev1.ServicePort{Name: "u", Port: ephemeralUDP, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(podPort)})
	}
	c.tempService(t, lab.ServiceSpec{Name: "taker", Ports: ports(), Pods: []*lab.Pod{c.Pods["a"]}, Change: func(s *corev1.ServiceSpec) {
		s.ExternalIPs = []string{own[0].String(), own[1].String()}
	}})
	c.waitForEvent(t, "taker", "--allow-external-ips")
	c.tempService(t, lab.ServiceSpec{Name: "announced", Type: corev1.ServiceTypeLoadBalancer, Ports: ports(), Pods: []*lab.Pod{c.Pods["a"]}, Ingress: own})
	c.waitForEvent(t, "announced", "TCP port 40003 of "+own[0].String()+": the host's connections use this port")

	check := func(when string) {
		for i, v6 := range []bool{false, true} {
			within(t, when+": a new connection to the load balancer", func() error { return c.isServedBy(t, "ext", "a", port(own[i], listens)) })

			for _, sport := range []int{ephemeral + 2, bound} {
				within(t, fmt.Sprintf("%s: the host connects from port %d", when, sport), func() error {
					return c.ask(t, "node1", port(outside(v6), outsidePort), "-src", own[i].String(), "-sport", strconv.Itoa(sport))
				})
			}
		}

		for _, b := range held {
			if b.ended() {
				t.Errorf("%s: %s ended: %s%s", when, b.name, b.out.String(), b.err.String())
			}
		}
	}
	check("Services added")
	c.restartAgent(t, 1)
	check("agent restarted")

	for _, b := range held {
		b.stop(t)
		b.held(t)
	}
}

// isServedBy makes one TCP request and returns an error unless that server answers.
func (c *Cluster) isServedBy(t *testing.T, on, by string, to netip.AddrPort) error {
	t.Helper()

	out, err := c.Exec(t.Context(), on, c.traffic("tcp", to.String(), "-timeout", "2s")...)
	if server, _, _ := strings.Cut(string(out), " "); err == nil && server != by {
		err = fmt.Errorf("answered by %q, want %s", server, by)
	}

	return err
}

// testStrangersSocket: a tenant removes an EndpointSlice that names a server outside. The host's
// own UDP sockets to that server stay; a socket that the Service connected ends.
func testStrangersSocket(t *testing.T, c *Cluster) {
	for _, v6 := range []bool{false, true} {
		server := port(outside(v6), outsidePort)
		name := "ntp" + strings.ToLower(Result{V6: v6}.Family())
		c.tempService(t, lab.ServiceSpec{Name: name, Ports: servicePorts(outsidePort, 0), Others: []netip.Addr{server.Addr()}})
		inside := port(c.cluster(name)(v6), servicePort)

		within(t, "the Service, from the host", func() error {
			_, err := c.Exec(t.Context(), "node1", c.traffic("udp", inside.String(), "-timeout", "2s")...)
			return err
		})
		own := c.hold(t, "the host's own socket", "node1", server, time.Hour, "-udp")

		translated := c.hold(t, "a socket of the Service", "node1", inside, time.Hour, "-udp")
		for _, s := range []*background{own, translated} {
			c.isConnected(t, s, "node1", server)
		}

		c.restartAgent(t, 1)

		if err := c.DelService(t.Context(), "default", name); err != nil {
			t.Fatal(err)
		}

		delete(c.Services, name)

		if <-translated.done; translated.failed == nil || !strings.Contains(translated.out.String(), "abort") {
			t.Errorf("a socket of the Service: %v: %s, want it aborted", translated.failed, translated.out.String())
		}

		own.stop(t)
		own.held(t)
	}
}

// isConnected waits until the command has a socket that is connected to the peer.
func (c *Cluster) isConnected(t *testing.T, b *background, on string, peer netip.AddrPort) {
	t.Helper()
	within(t, b.name, func() error {
		out := c.execute(t, on, "ss", "-Htunp", "state", "established", "dst", peer.String())
		if strings.Contains(out, fmt.Sprintf("pid=%d,", b.cmd.Process.Pid)) {
			return nil
		}

		return fmt.Errorf("not connected to %s: %s", peer, out)
	})
}

// testFalseEndpoint: a slice says that an address which no host has is on node1. With
// externalTrafficPolicy Local and port 22, connections to the NodePort must not reach the host's
// ssh.
func testFalseEndpoint(t *testing.T, c *Cluster) {
	const nodePort = 30086

	node := "node1"
	svc := c.tempService(t, lab.ServiceSpec{Name: "door", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(sshPort, nodePort), Change: func(s *corev1.ServiceSpec) {
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}})

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "door-false", Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{unanswered.String()}, NodeName: &node}},
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(int32(sshPort))})
	}

	if _, err := client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := client.DiscoveryV1().EndpointSlices("default").Delete(context.WithoutCancel(t.Context()), slice.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})

	to := port(c.gateway(1)(false), nodePort)
	c.awaitNB(t, "the endpoint", "Load_Balancer", "vips{!=}{}", "external_ids:ovn-ebpf.io/owner=service/default/"+svc.Name)

	for _, when := range []string{"endpoint added", "agent restarted"} {
		if err := isUnanswered(c.ask(t, "ext", to, "-timeout", "1s")); err != nil {
			t.Errorf("%s: a connection to %s: %v", when, to, err)
		}

		c.restartAgent(t, 1)
	}
}

// staysReady fails the test for each answer of a node's readiness or health check that is not 200,
// until the returned function is called.
func (c *Cluster) staysReady(t *testing.T) (end func()) {
	t.Helper()

	stop, done := make(chan struct{}), make(chan struct{})
	ask := func(node, url string) {
		client, err := c.Client(node)
		if err != nil {
			t.Error(err)
			return
		}

		if err := lab.Healthy(t.Context(), client, url); err != nil {
			t.Errorf("%s: %s: %v", node, url, err)
		}
	}

	go func() {
		defer close(done)

		for {
			for _, n := range c.Nodes() {
				ask(n.Name, "http://127.0.0.1:9410/readyz")
				ask(n.Name, "http://127.0.0.1:10256/healthz")
			}

			select {
			case <-stop:
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()

	end = sync.OnceFunc(func() {
		close(stop)
		<-done
	})
	t.Cleanup(end)

	return end
}

// testManyFrontends: one namespace has 34 Services of about 8,000 frontends each. Those beyond its
// budget are not served, the nodes stay ready, an agent starts, and others' Services work.
func testManyFrontends(t *testing.T, c *Cluster) {
	const namespace, services = "greedy", 34

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for i := range services {
			_ = client.CoreV1().Services(namespace).Delete(ctx, fmt.Sprint("wide", i), metav1.DeleteOptions{})
		}
	})
	end := c.staysReady(t)

	for i := range services {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("wide", i)}}
		for p := range int32(1024) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Port: 20000 + p})
		}

		for a := range 7 {
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, fmt.Sprintf("203.0.113.%d", 1+7*i+a))
		}

		if _, err := client.CoreV1().Services(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	const fit = 32768 / (8192/9*8*4 + 8) // flows of 910 ports at eight addresses; the oldest, by UID in one second

	within(t, "events about those beyond the budget", func() error {
		events, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}

		refused := map[string]bool{}

		for _, e := range events.Items {
			if e.Reason == "NotServed" && strings.Contains(e.Message, "29128 flows on each node") && strings.Contains(e.Message, "--namespace-frontends") {
				refused[e.InvolvedObject.Name] = true
			}
		}

		if len(refused) < services-fit {
			return fmt.Errorf("%d Services are beyond the budget, want %d", len(refused), services-fit)
		}

		return nil
	})
	end()
	c.restartAgent(t, 1)
	end = c.staysReady(t)
	c.tempService(t, lab.ServiceSpec{Name: "after", Type: corev1.ServiceTypeNodePort, Ports: servicePorts(podPort, 30087), Pods: []*lab.Pod{c.Pods["a"]}})

	for _, v6 := range []bool{false, true} {
		within(t, "another namespace's Service, from outside", func() error { return c.isServedBy(t, "ext", "a", port(c.gateway(1)(v6), 30087)) })
		within(t, "another namespace's Service, from the host", func() error { return c.isServedBy(t, "node1", "a", port(c.cluster("after")(v6), servicePort)) })
	}

	end()
}

// flowCount reads the number of flows from the answer of ovs-ofctl dump-aggregate.
func flowCount(t *testing.T, out string) int {
	t.Helper()

	_, text, _ := strings.Cut(out, "flow_count=")

	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatalf("flows in %q: %v", out, err)
	}

	return n
}

// testManyPortRanges: a policy of 38 rules with 900 port ranges each makes no flows. It allows
// nothing, and an Event states cost and bound.
func testManyPortRanges(t *testing.T, c *Cluster) {
	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	if err := c.addPod(t.Context(), "ranges", "node1"); err != nil {
		t.Fatal(err)
	}

	pod := c.Pods["ranges"]

	t.Cleanup(func() {
		if err := c.DelPod(context.WithoutCancel(t.Context()), pod); err != nil {
			t.Error(err)
		}

		delete(c.Pods, "ranges")
	})

	if _, err := client.CoreV1().Pods("default").Patch(t.Context(), "ranges", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"ranges"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}

	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "ranges"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "ranges"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
	}}

	for i := range 38 {
		rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("198.18.%d.0/24", i)}}}}

		for p := range int32(900) {
			first, last := intstr.FromInt32(1+p*70), 1+p*70+60
			rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Port: &first, EndPort: &last})
		}

		policy.Spec.Ingress = append(policy.Spec.Ingress, rule)
	}

	flows := func() int {
		out := c.execute(t, "node1", "ovs-ofctl", "dump-aggregate", "unix:"+filepath.Join(c.Node(1).RunDir, "br-int.mgmt"))
		return flowCount(t, out)
	}
	before := flows()

	if _, err := client.NetworkingV1().NetworkPolicies("default").Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := client.NetworkingV1().NetworkPolicies("default").Delete(context.WithoutCancel(t.Context()), "ranges", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	c.waitForEvent(t, "ranges", "4096")
	c.execute(t, "central", "ovn-nbctl", "--db="+c.NBAddress(), "--wait=hv", "--timeout=60", "sync")

	if after := flows(); after > before+1000 {
		t.Errorf("%d flows before the policy, %d after", before, after)
	}
}
