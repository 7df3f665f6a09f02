package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// testForgedSlice: a tenant writes a slice with the label of the control plane five times a second,
// for a Service with a selector. Its endpoint is another node's ssh. No connection reaches it,
// while the slice's other port is served. The lab has no admission policy, so that the tenant may
// write this label, and no controller that corrects the slice.
func testForgedSlice(t *testing.T, c *Cluster) {
	const nodePortSSH, nodePortOther = 30093, 30094

	ports := []corev1.ServicePort{
		{Name: "ssh", Port: servicePort, NodePort: nodePortSSH, TargetPort: intstr.FromInt32(sshPort)},
		{Name: "other", Port: servicePort + 1, NodePort: nodePortOther, TargetPort: intstr.FromInt32(hostPort)},
	}
	svc := c.tempService(t, lab.ServiceSpec{
		Name: "forged", Type: corev1.ServiceTypeNodePort, Ports: ports,
		Change: func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "forged"} },
	})
	c.rewrite(t, forgedSlice(svc, c.node(2)(false)))

	clients := []struct {
		on         string
		ssh, other netip.AddrPort
	}{
		{"ext", port(c.gateway(1)(false), nodePortSSH), port(c.gateway(1)(false), nodePortOther)},
		{host("a"), port(c.cluster(svc.Name)(false), servicePort), port(c.cluster(svc.Name)(false), servicePort+1)},
	}
	for _, when := range []string{"slice forged", "agent restarted"} {
		for _, from := range clients {
			within(t, when+": the other port, from "+from.on, func() error { return c.isServedBy(t, from.on, "node2", from.other) })

			for range 10 {
				if err := isUnanswered(c.ask(t, from.on, from.ssh, "-timeout", "500ms")); err != nil {
					t.Errorf("%s: a connection from %s to %s: %v", when, from.on, from.ssh, err)
				}
			}
		}

		c.restartAgent(t, 1)
	}

	c.waitForEvent(t, svc.Name, "TCP port 22 of a node is the node's own; if the pods of the Service use the host's network, install")
}

// forgedSlice returns a slice of the Service with one endpoint, which claims to be the control
// plane's.
func forgedSlice(svc *corev1.Service, a netip.Addr) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: svc.Name + "-x7k2p", Labels: map[string]string{
			discoveryv1.LabelServiceName: svc.Name,
			discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{a.String()}}},
	}
	for _, p := range svc.Spec.Ports {
		number := p.TargetPort.IntVal
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: &number})
	}

	return slice
}

// rewrite writes the slice with changes five times a second, until the test ends.
func (c *Cluster) rewrite(t *testing.T, slice *discoveryv1.EndpointSlice) {
	t.Helper()

	client, err := c.Kubernetes()
	if err != nil {
		t.Fatal(err)
	}

	api := client.DiscoveryV1().EndpointSlices("default")
	if _, err := api.Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())

	done := make(chan error, 1)
	go func() { done <- rewriteUntil(ctx, slice, api.Update) }()

	t.Cleanup(func() {
		stop()

		if err := <-done; err != nil {
			t.Errorf("write the slice again: %v", err)
		}

		if err := api.Delete(context.WithoutCancel(t.Context()), slice.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

type updateSlice = func(context.Context, *discoveryv1.EndpointSlice, metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error)

func rewriteUntil(ctx context.Context, slice *discoveryv1.EndpointSlice, update updateSlice) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()

	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}

		// Another name of a node makes controller and agents plan the Service anew.
		slice.Endpoints[0].NodeName = new(fmt.Sprint("node", 1+i%2))
		if _, err := update(ctx, slice, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
			return err
		}
	}
}
