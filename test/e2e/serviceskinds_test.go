package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/test/lab"
)

// Node ports of TestServices.
const (
	kindNodePort = 30100 + iota
	kindLocalNodePort
	kindIdleNodePort
	kindLeavingNodePort
	kindHostNodePort
	kindStickyNodePort
)

// podPort2 is the port of the servers of a second port.
const podPort2 = podPort + 1

// TestServices has a service of every kind on three nodes: pods a and b on node1, c on node2, d on
// node3.
func TestServices(t *testing.T) {
	c := startServices(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"cluster IP", testClusterIP},
		{"node port", testNodePort},
		{"announced and external addresses", testAddresses},
		{"headless", testHeadless},
		{"endpoints outside", testManual},
		{"one family", testOneFamily},
		{"affinity", testAffinity},
		{"external policy Local", testExternalLocal},
		{"internal policy Local", testInternalLocal},
		{"no endpoints", testNoEndpoints},
		{"not ready", testNotReady},
		{"on their way out", testLeaving},
		{"hosts", testHostEndpoints},
		{"hints", testHints},
		{"clash", testClash},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c) })
	}
}

func startServices(t *testing.T) *Cluster {
	t.Helper()
	o := labOptions(t, lab.Options{Nodes: 3, Cluster: true})

	l, err := lab.Up(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	downAfter(t, l, o)
	c := &Cluster{Lab: l, Pods: map[string]*lab.Pod{}, Services: map[string]*corev1.Service{}, dir: o.Dir, bin: o.BinDir, wiring: wiringOf(o)}

	c.tool = []string{c.Binary("ovnlab"), "traffic"}
	for name, node := range map[string]string{"a": "node1", "b": "node1", "c": "node2", "d": "node3"} {
		if err := c.addPod(t.Context(), name, node); err != nil {
			t.Fatal(err)
		}
	}

	for on, port := range map[string]uint16{"node1": hostPort, "node2": hostPort, "ext": outsidePort} {
		if err := c.serve(t.Context(), on, on, port); err != nil {
			t.Fatal(err)
		}
	}

	if err := c.serve(t.Context(), host("a"), "second", podPort2); err != nil {
		t.Fatal(err)
	}

	for _, s := range c.kindSpecs() {
		if err := c.addService(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}

	for last, node := range map[byte]int{20: 1, 21: 2, 22: 1, 23: 2} {
		for _, v6 := range []bool{false, true} {
			to := kindVIP(last)(v6)
			c.execute(t, "ext", "ip", "route", "replace", netip.PrefixFrom(to, to.BitLen()).String(), "via", c.gateway(node)(v6).String())
		}
	}

	return c
}

// kindVIP returns an address that only the outside host routes.
func kindVIP(last byte) func(v6 bool) netip.Addr {
	return func(v6 bool) netip.Addr {
		six := netip.MustParseAddr("2001:db8:10::").As16()
		six[15] = last

		return choose(v6, netip.AddrFrom4([4]byte{203, 0, 113, last}), netip.AddrFrom16(six))
	}
}

func (c *Cluster) kindSpecs() []lab.ServiceSpec {
	a, b, p := c.Pods["a"], c.Pods["b"], c.Pods["c"]
	vips := func(last byte) []netip.Addr { return []netip.Addr{kindVIP(last)(false), kindVIP(last)(true)} }
	texts := func(last byte) []string { return []string{kindVIP(last)(false).String(), kindVIP(last)(true).String()} }
	none, local, single := false, corev1.ServiceInternalTrafficPolicyLocal, corev1.IPFamilyPolicySingleStack

	const nodePorts, balanced = corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer

	plain, both := servicePorts(podPort, 0), []*lab.Pod{a, p}
	external := func(s *corev1.ServiceSpec) { s.ExternalIPs = texts(21) }
	outLocal := func(s *corev1.ServiceSpec) { s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }
	noNodePorts := func(s *corev1.ServiceSpec) { s.AllocateLoadBalancerNodePorts = &none }

	several := append(slices.Clone(plain), corev1.ServicePort{Name: "second", Port: 81, TargetPort: intstr.FromInt32(podPort2)})

	return []lab.ServiceSpec{
		{Name: "many", Ports: several, Pods: both},
		{Name: "self", Ports: plain, Pods: []*lab.Pod{a}},
		{Name: "nodeport", Type: nodePorts, Ports: servicePorts(podPort, kindNodePort), Pods: both},
		{Name: "balanced", Type: balanced, Ports: plain, Pods: both, Ingress: vips(20), Change: noNodePorts},
		{Name: "external", Ports: plain, Pods: both, Change: external},
		{Name: "headless", Ports: plain, Pods: both, Change: func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }},
		{Name: "manual", Ports: servicePorts(outsidePort, 0), Others: []netip.Addr{outside(false), outside(true)}},
		{Name: "single", Ports: plain, Pods: []*lab.Pod{a}, Change: func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = &single }},
		{Name: "sticky", Type: nodePorts, Ports: servicePorts(podPort, kindStickyNodePort), Pods: both, Change: sticky},
		{Name: "out", Type: balanced, Ports: servicePorts(podPort, kindLocalNodePort), Pods: both, Ingress: vips(22), Change: outLocal},
		{Name: "in", Ports: plain, Pods: []*lab.Pod{b, p}, Change: func(s *corev1.ServiceSpec) { s.InternalTrafficPolicy = &local }},
		{Name: "idle", Type: nodePorts, Ports: servicePorts(podPort, kindIdleNodePort)},
		{Name: "early", Ports: plain, Pods: []*lab.Pod{a}, Each: notReady, Change: func(s *corev1.ServiceSpec) { s.PublishNotReadyAddresses = true }},
		{Name: "late", Ports: plain, Pods: []*lab.Pod{a}, Each: notReady},
		{Name: "leaving", Ports: plain, Pods: both, Each: c.leaves("a")},
		{Name: "outleaving", Type: nodePorts, Ports: servicePorts(podPort, kindLeavingNodePort), Pods: both, Each: c.leaves("a"), Change: outLocal},
		{Name: "hosts", Type: nodePorts, Ports: servicePorts(hostPort, kindHostNodePort), Hosts: []*lab.Node{c.Node(1), c.Node(2)}},
		{Name: "hinted", Ports: plain, Pods: both, Each: hinted},
		{Name: "first", Ports: plain, Pods: []*lab.Pod{a}, Change: func(s *corev1.ServiceSpec) { s.ExternalIPs = texts(23) }},
	}
}

func notReady(_ *lab.Pod, e *discoveryv1.Endpoint) {
	no := false
	e.Conditions.Ready, e.Conditions.Serving = &no, &no
}

// leaves marks the endpoint of that pod as terminating.
func (c *Cluster) leaves(pod string) func(*lab.Pod, *discoveryv1.Endpoint) {
	return func(p *lab.Pod, e *discoveryv1.Endpoint) {
		if p.Name == pod {
			yes, no := true, false
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		}
	}
}

// hinted restricts each endpoint to its own node.
func hinted(p *lab.Pod, e *discoveryv1.Endpoint) {
	e.Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: p.Node}}}
}

// refused is the result for clients of a service without endpoints: an immediate error.
const refused = "refused"

// firstAnswer is the time within which a request is answered. It is less than the second after
// which clients repeat a lost SYN or datagram, so that a repeated request is no answer.
func firstAnswer() time.Duration { return 900 * time.Millisecond * patience() }

// see makes twelve requests and returns the servers that answered, separated by commas; or refused.
func (c *Cluster) see(t *testing.T, from, protocol string, to netip.AddrPort) (string, error) {
	t.Helper()

	out, err := c.Exec(t.Context(), from, c.traffic(protocol, "-n", "12", "-timeout", firstAnswer().String(), to.String())...)
	if err != nil && strings.Contains(err.Error(), "connection refused") {
		return refused, nil
	}

	if err != nil {
		return "", err
	}

	var names []string

	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}

	slices.Sort(names)

	return strings.Join(slices.Compact(names), ","), nil
}

// sees checks the servers behind a service's address, in both families and over TCP and UDP. New
// objects may take a while.
func (c *Cluster) sees(t *testing.T, from string, to func(bool) netip.Addr, port uint16, want string) {
	t.Helper()

	for _, v6 := range []bool{false, true} {
		for _, protocol := range []string{"tcp", "udp"} {
			c.seesOne(t, from, protocol, netip.AddrPortFrom(to(v6), port), want)
		}
	}
}

func (c *Cluster) seesOne(t *testing.T, from, protocol string, to netip.AddrPort, want string) {
	t.Helper()
	within(t, fmt.Sprintf("%s from %s to %s", protocol, from, to), func() error {
		got, err := c.see(t, from, protocol, to)
		if err == nil && got != want {
			err = fmt.Errorf("%s, want %s", got, want)
		}

		return err
	})
}
