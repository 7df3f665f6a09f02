package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Host ports of the pods of testLoopback.
const (
	dnsPort        = 53    // of the host's resolver, at 127.0.0.53
	schedulerPort  = 10259 // of servers of the host, at 127.0.0.1
	controllerPort = 10257
	freePort       = 18088 // no socket of the host has these two
	askedPort      = 18089
)

// hostServers are the servers of node1's host at loopback addresses, by protocol.
var hostServers = []struct {
	protocol string
	at       netip.AddrPort
}{
	{"udp", netip.MustParseAddrPort("127.0.0.53:53")},
	{"tcp", netip.MustParseAddrPort("127.0.0.1:10259")},
	{"tcp", netip.MustParseAddrPort("127.0.0.1:10257")},
}

// testLoopback: pods of a tenant have the ports of the host's servers at loopback addresses,
// without and with hostIP. The host reaches its own servers before, after, and after a restart of
// the agent. Other host ports are served at a loopback address only if hostIP asks for it.
func testLoopback(t *testing.T, c *Cluster) {
	if testing.Short() {
		t.Skip(inFull)
	}

	for i, s := range hostServers {
		if err := c.serveAs(t.Context(), "node1", fmt.Sprintf("serve-loopback-%d", i), "-name", "node1", "-"+s.protocol, s.at.String()); err != nil {
			t.Fatal(err)
		}
	}

	c.hostAnswers(t, "before")

	c.hostPortPod(t, "everywhere", "", "")
	c.hostPortPod(t, "asks", "127.0.0.53", "127.0.0.1")

	for _, what := range []string{"UDP port 53 of 127.0.0.53", "TCP port 10259 of 127.0.0.1", "TCP port 10257 of 127.0.0.1"} {
		c.waitForEvent(t, "asks", what+": a socket of the host is open on this port")
	}

	c.loopbackPorts(t, "with the pods")

	c.replaceAgent(t, syscall.SIGKILL, c.bin)
	c.loopbackPorts(t, "after a restart of the agent")
}

// hostPortPod adds a pod to node1 for the time of the test, with the ports of the host's servers
// and another one. The host IPs are for DNS and for the others.
func (c *Cluster) hostPortPod(t *testing.T, name, dns, other string) {
	t.Helper()

	another := int32(freePort)
	if other != "" {
		another = askedPort
	}

	ports := []corev1.ContainerPort{
		{HostPort: dnsPort, HostIP: dns, Protocol: corev1.ProtocolUDP},
		{HostPort: schedulerPort, HostIP: other, Protocol: corev1.ProtocolTCP},
		{HostPort: controllerPort, HostIP: other, Protocol: corev1.ProtocolTCP},
		{HostPort: another, HostIP: other, Protocol: corev1.ProtocolTCP},
		{HostPort: another, HostIP: other, Protocol: corev1.ProtocolUDP},
	}
	for i := range ports {
		ports[i].ContainerPort = podPort
	}

	pod, err := c.AddPod(t.Context(), lab.PodSpec{Namespace: "default", Name: name, Node: "node1", Ports: ports})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.DelPod(context.WithoutCancel(t.Context()), pod); err != nil {
			t.Error(err)
		}
	})

	if err := c.serve(t.Context(), host(name), name, podPort); err != nil {
		t.Fatal(err)
	}
}

// loopbackPorts checks all host ports of both pods, by connections of node1's host.
func (c *Cluster) loopbackPorts(t *testing.T, when string) {
	t.Helper()

	loopback, node := netip.MustParseAddr("127.0.0.1"), c.node(1)(false)
	c.hostAnswers(t, when)

	for _, protocol := range []string{"tcp", "udp"} {
		c.seesOne(t, "node1", protocol, port(node, freePort), "everywhere")
		c.seesOne(t, "node1", protocol, port(loopback, freePort), refused)
		c.seesOne(t, "node1", protocol, port(netip.IPv6Loopback(), freePort), refused)
		c.seesOne(t, "node1", protocol, port(loopback, askedPort), "asks")
		c.seesOne(t, "node1", protocol, port(node, askedPort), refused)
	}

	// Without hostIP, the ports of the servers are served at the node's address.
	c.seesOne(t, "node1", "udp", port(node, dnsPort), "everywhere")
	c.seesOne(t, "node1", "tcp", port(node, schedulerPort), "everywhere")
	c.hostAnswers(t, when)
}

// hostAnswers checks that the host's servers answer each of 36 requests of the host.
func (c *Cluster) hostAnswers(t *testing.T, when string) {
	t.Helper()

	for range 3 {
		for _, s := range hostServers {
			if got, err := c.see(t, "node1", s.protocol, s.at); err != nil || got != "node1" {
				t.Errorf("%s: %s from the host to %s: %q, %v, want its own server", when, s.protocol, s.at, got, err)
			}
		}
	}
}
