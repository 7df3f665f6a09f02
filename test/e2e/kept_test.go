package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testServiceAtAPIServer: a tenant's Service has the API server's address as an external IP, in an
// allowed range, and no endpoints. The API server does not run on a Node. Nodes and pods keep the API
// server and OVN's databases, an agent starts, and the agents learn that the Service was deleted.
func testServiceAtAPIServer(t *testing.T, c *Cluster) {
	const free = 8098 // no server has it

	api := netip.MustParseAddr(lab.CentralIP4)
	connects := func(on string, p uint16) error {
		out, err := c.Exec(t.Context(), on, "timeout", "2", "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", api, p))
		if err != nil {
			return fmt.Errorf("connect from %s to %s: %w: %s", on, port(api, p), err, out)
		}

		return nil
	}
	reaches := func(when string) {
		t.Helper()

		for _, on := range []string{"node1", "node2", host("a")} {
			for _, p := range []uint16{6443, 6641, 6642} {
				if err := connects(on, p); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
		}
	}
	reaches("before")

	var ports []corev1.ServicePort
	for _, p := range []int32{6443, 6641, 6642, free} {
		ports = append(ports, corev1.ServicePort{Name: fmt.Sprint("t", p), Port: p, TargetPort: intstr.FromInt32(podPort)})
	}

	c.tempService(t, lab.ServiceSpec{Name: "control", Ports: ports, Change: func(s *corev1.ServiceSpec) { s.ExternalIPs = []string{api.String()} }})
	c.waitForEvent(t, "control", "TCP port 6443 of "+api.String()+": it is the API server's")
	c.awaitNB(t, "the other port", "Load_Balancer", fmt.Sprintf(`vips{>=}{"%s"=""}`, port(api, free)), "external_ids:ovn-ebpf.io/owner=service/default/control")

	reaches("Service added")
	c.restartAgent(t, 1)
	reaches("agent restarted")
	c.tempService(t, lab.ServiceSpec{Name: "later", Ports: servicePorts(podPort, 0), Pods: []*lab.Pod{c.Pods["a"]}})

	for _, on := range []string{"node1", "node2"} {
		within(t, "a new Service, from "+on, func() error { return c.isServedBy(t, on, "a", port(c.cluster("later")(false), servicePort)) })
	}

	if err := c.DelService(t.Context(), "default", "control"); err != nil {
		t.Fatal(err)
	}

	delete(c.Services, "control")
	reaches("Service deleted")
}

// testDatabasePorts: a load balancer announces a node's address, and a pod has host ports. Neither
// gets the ports of OVN's databases, which a process of the node has.
func testDatabasePorts(t *testing.T, c *Cluster) {
	const other = 8099

	databases := []uint16{6641, 6642, 6643, 6644, 6645}
	own := []netip.Addr{c.node(1)(false), c.node(1)(true)}

	var (
		ports     []corev1.ServicePort
		hostPorts []corev1.ContainerPort
	)

	for _, p := range databases {
		if err := c.serve(t.Context(), "node1", "node1", p); err != nil {
			t.Fatal(err)
		}

		ports = append(ports, corev1.ServicePort{Name: fmt.Sprint("t", p), Port: int32(p), TargetPort: intstr.FromInt32(podPort)})
		hostPorts = append(hostPorts, corev1.ContainerPort{HostPort: int32(p), ContainerPort: podPort})
	}

	hostPorts = append(hostPorts, corev1.ContainerPort{HostPort: other + 1, ContainerPort: podPort})
	ports = append(ports, corev1.ServicePort{Name: "other", Port: other, TargetPort: intstr.FromInt32(podPort)})

	c.tempService(t, lab.ServiceSpec{Name: "database", Type: corev1.ServiceTypeLoadBalancer, Ports: ports, Pods: []*lab.Pod{c.Pods["a"]}, Ingress: own})

	pod, err := c.AddPod(t.Context(), lab.PodSpec{Namespace: "default", Name: "database-pod", Node: "node1", Ports: hostPorts})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := c.DelPod(context.WithoutCancel(t.Context()), pod); err != nil {
			t.Error(err)
		}
	})

	if err := c.serve(t.Context(), pod.Host(), "database", podPort); err != nil {
		t.Fatal(err)
	}

	c.waitForEvent(t, "database", fmt.Sprintf("TCP port 6642 of %s: it is the node's own", own[0]))
	c.waitForEvent(t, "database-pod", fmt.Sprintf("TCP port 6642 of %s: it is the node's own", own[0]))

	check := func(when string) {
		t.Helper()

		for _, v6 := range []bool{false, true} {
			for _, on := range []string{"ext", "node1", "node2"} {
				at := c.node(1)(v6)

				within(t, when+": another port, from "+on, func() error { return c.isServedBy(t, on, "a", port(at, other)) })
				within(t, when+": another host port, from "+on, func() error { return c.isServedBy(t, on, "database", port(at, other+1)) })

				for _, p := range databases {
					if err := c.isServedBy(t, on, "node1", port(at, p)); err != nil {
						t.Errorf("%s: port %d, from %s: %v", when, p, on, err)
					}
				}
			}
		}
	}
	check("objects added")
	c.restartAgent(t, 1)
	check("agent restarted")
}

// testTunnelEndpoint: a slice has node2's address at the tunnels' port, behind a NodePort. Datagrams
// to the NodePort do not reach it, and those to another port of the slice do.
func testTunnelEndpoint(t *testing.T, c *Cluster) {
	const tunnelNodePort, otherNodePort, tunnel, other, marker = 30088, 30089, 6081, 9099, "row6"

	svc := c.tempService(t, lab.ServiceSpec{Name: "tunnel", Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
		{Name: "tunnel", Protocol: corev1.ProtocolUDP, Port: 80, TargetPort: intstr.FromInt32(tunnel), NodePort: tunnelNodePort},
		{Name: "other", Protocol: corev1.ProtocolUDP, Port: 81, TargetPort: intstr.FromInt32(other), NodePort: otherNodePort},
	}})

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "tunnel-node2", Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{c.node(2)(false).String()}}},
	}
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &p.TargetPort.IntVal})
	}

	if _, err := client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := client.DiscoveryV1().EndpointSlices("default").Delete(context.WithoutCancel(t.Context()), slice.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	c.waitForEvent(t, svc.Name, "UDP port 6081 outside of the pods is the tunnels'")

	const id = "seen-at-node2"

	capture, err := c.Spawn("node2", id, "tcpdump", "-lni", "any", "-Q", "in", fmt.Sprintf("udp and (port %d or port %d) and udp[8:4] = 0x%x", tunnel, other, marker))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = capture.Stop(time.Second) })

	seen := func() string {
		b, err := os.ReadFile(filepath.Join(c.dir, "log", id+".log"))
		if err != nil {
			t.Fatal(err)
		}

		return string(b)
	}
	send := func(to uint16) error {
		_, err := c.Exec(t.Context(), "ext", "bash", "-c", fmt.Sprintf("printf %s > /dev/udp/%s/%d", marker, c.gateway(1)(false), to))
		return err
	}

	for _, when := range []string{"endpoint added", "agent restarted"} {
		had := strings.Count(seen(), fmt.Sprintf(".%d: ", other))

		within(t, when+": datagrams to the other port", func() error {
			for _, to := range []uint16{tunnelNodePort, otherNodePort} {
				if err := send(to); err != nil {
					return err
				}
			}

			if out := seen(); strings.Count(out, fmt.Sprintf(".%d: ", other)) < had+3 {
				return fmt.Errorf("node2 has seen: %s", out)
			}

			return nil
		})

		if out := seen(); strings.Contains(out, fmt.Sprintf(".%d: ", tunnel)) {
			t.Errorf("%s: datagrams reached the tunnels' port:\n%s", when, out)
		}

		c.restartAgent(t, 1)
	}
}
