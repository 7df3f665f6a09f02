package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// unanswered is an address of no network of the lab.
var unanswered = netip.MustParseAddr("203.0.113.99")

// isTold waits for a NotServed Event about an object of the namespace default.
func (c *Cluster) isTold(t *testing.T, name, text string) {
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
	c.isTold(t, "taker", "--allow-external-ips")
	c.tempService(t, lab.ServiceSpec{Name: "announced", Type: corev1.ServiceTypeLoadBalancer, Ports: ports(), Pods: []*lab.Pod{c.Pods["a"]}, Ingress: own})
	c.isTold(t, "announced", "TCP port 40003 of "+own[0].String()+": the host's connections use this port")

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

// testStrangersSocket: a tenant removes an EndpointSlice that names a server outside. The host's own
// UDP sockets to that server stay; a socket that the Service connected ends.
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
// externalTrafficPolicy Local and port 22, connections to the NodePort must not reach the host's ssh.
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
		if out, err := c.Exec(t.Context(), "ext", c.traffic("tcp", to.String(), "-timeout", "1s")...); err == nil {
			t.Errorf("%s: a connection to %s was answered by %s", when, to, out)
		}
		c.restartAgent(t, 1)
	}
}
