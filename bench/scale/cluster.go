package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

const (
	namespaces = 50
	hostLen    = 22 // prefix length of the nodes' subnets
	httpPort   = 8080
	perService = 10 // maximum number of endpoints of a Service
)

// The networks of the cluster. Service addresses are those of the API server.
var (
	clusterCIDR = netip.MustParsePrefix("10.128.0.0/9")
	joinCIDR    = netip.MustParsePrefix("100.64.0.0/16")
	serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")
)

// cluster makes the objects of the simulated cluster. They have all that agents, the scheduler and
// the controller manager would write, because none of these runs.
type cluster struct {
	random *rand.Rand // chooses the pods' nodes
	nodes  []node
	pods   []podRef // existing pods, oldest first
	made   int      // pods so far, including deleted ones
	rounds int      // calls of api.churn so far
}

type node struct {
	name   string
	id     int
	subnet netip.Prefix
	join   netip.Prefix
	next   netip.Addr // address of the next pod on it
}

type podRef struct {
	namespace, name string
	address         netip.Addr
}

// newCluster returns a cluster without pods. seed determines the nodes of later pods.
func newCluster(nodes int, seed uint64) (*cluster, error) {
	c := &cluster{random: rand.New(rand.NewPCG(seed, 0))}
	allocator := ipam.NewNodes([]ipam.Subnet{{Prefix: clusterCIDR, HostLen: hostLen}}, 1<<16)

	for i := range nodes {
		n := node{name: nodeName(i)}

		var err error
		if n.id, err = allocator.ID(n.name); err != nil {
			return nil, err
		}

		subnets, err := allocator.Subnets(n.name)
		if err != nil {
			return nil, err
		}

		n.subnet = subnets[0]
		if n.join, err = ipam.JoinAddress(joinCIDR, n.id); err != nil {
			return nil, err
		}

		n.next = plan.ManagementAddress(n.subnet).Addr().Next()
		c.nodes = append(c.nodes, n)
	}

	return c, nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

func nodeAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}) }

func (c *cluster) node(i int) *corev1.Node {
	n := c.nodes[i]
	addr := netip.PrefixFrom(nodeAddress(i), 16)
	mac := net.HardwareAddr{2, 0, 0, 0, byte(i >> 8), byte(i)}

	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Annotations: map[string]string{
		annotation.ChassisID: n.name,
		annotation.GatewayConfig: annotation.FormatGateway(annotation.Gateway{
			Mode: annotation.GatewayModeShared, InterfaceID: "breth0_" + n.name, MAC: mac.String(),
			Addresses: []netip.Prefix{addr}, NextHops: []netip.Addr{netip.MustParseAddr("172.16.255.254")}, NodePorts: true,
		}),
		annotation.HostCIDRs:      annotation.FormatHostCIDRs([]netip.Prefix{addr}),
		annotation.ManagementMACs: annotation.FormatManagementMAC(mac),
		annotation.NodeID:         strconv.Itoa(n.id),
		annotation.NodeSubnets:    annotation.FormatNodeSubnets([]netip.Prefix{n.subnet}),
		annotation.NodeJoin:       annotation.FormatJoin(annotation.Join{IPv4: n.join}),
	}}}
}

func namespaceName(i int) string { return fmt.Sprintf("bench-%02d", i%namespaces) }

// pod adds a pod on a random node and returns its object. As with a scheduler, each node has pods
// of all namespaces. Without addresses, the controller must allocate them.
func (c *cluster) pod(addresses bool) *corev1.Pod {
	return c.podOn(c.random.IntN(len(c.nodes)), addresses)
}

// podOn adds a pod on the node with this index.
func (c *cluster) podOn(node int, addresses bool) *corev1.Pod {
	i := c.made
	c.made++
	n := &c.nodes[node]
	ref := podRef{namespace: namespaceName(i), name: fmt.Sprintf("pod-%06d", i)}

	var annotations map[string]string

	if addresses {
		ref.address = n.next
		n.next = n.next.Next()
		annotations = map[string]string{annotation.PodNetworks: annotation.FormatPod(annotation.Pod{
			Addresses: []netip.Prefix{netip.PrefixFrom(ref.address, n.subnet.Bits())}, MAC: annotation.DerivedMAC(ref.address),
			Gateways: []netip.Addr{plan.RouterAddress(n.subnet).Addr()},
		})}
	}

	c.pods = append(c.pods, ref)

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: ref.name, Namespace: ref.namespace, Annotations: annotations,
			Labels: map[string]string{"app": fmt.Sprint("app-", i/namespaces%10), "tier": []string{"web", "db"}[i/namespaces%2]},
		},
		Spec: corev1.PodSpec{NodeName: n.name, Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

// oldest removes the oldest pod and returns it.
func (c *cluster) oldest() podRef {
	p := c.pods[0]
	c.pods = c.pods[1:]

	return p
}

func serviceName(i int) string { return fmt.Sprintf("svc-%04d", i) }

// service returns a service and its endpoints. One in twenty has a node port.
func (c *cluster) service(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
	kind := corev1.ServiceTypeClusterIP
	if i%20 == 0 {
		kind = corev1.ServiceTypeNodePort
	}

	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: serviceName(i), Namespace: namespaceName(i)},
		Spec:       corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(httpPort)}}},
	}

	return svc, c.slice(i, 0)
}

// slice returns the endpoints of the i-th Service. An odd version has one endpoint less than an
// even one, so successive versions differ.
func (c *cluster) slice(i, version int) *discoveryv1.EndpointSlice {
	name, port, proto := "http", int32(httpPort), corev1.ProtocolTCP

	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: serviceName(i) + "-a", Namespace: namespaceName(i), Labels: map[string]string{discoveryv1.LabelServiceName: serviceName(i)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &port}},
	}
	for k := range perService - version%2 {
		n := c.nodes[(i+k)%len(c.nodes)]
		addr := n.subnet.Addr().As4()
		addr[3] = byte(3 + i/len(c.nodes)%8)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{netip.AddrFrom4(addr).String()}, NodeName: &n.name})
	}

	return s
}

// policy returns the i-th policy. The first policy of each namespace denies all ingress. The others
// allow ingress to the pods of an app, in turn from a namespace, a network, or another app.
func (c *cluster) policy(i int) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%04d", i), Namespace: namespaceName(i)}}

	nth := i / namespaces
	if nth == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		return p
	}

	app := func(n int) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", n%10)}}
	}
	p.Spec.PodSelector = app(nth)
	from := app(nth + 1)
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &from}

	switch nth % 3 {
	case 1:
		peer = networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			corev1.LabelMetadataName: namespaceName(i + 1),
		}}}
	case 2:
		peer = networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: "172.16.0.0/16", Except: []string{"172.16.9.0/24"}}}
	}

	port := intstr.FromInt32(httpPort)
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{peer}, Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
	}}

	return p
}
