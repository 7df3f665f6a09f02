package campaign

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// most is the tenant's quota of objects per kind.
const most = 30

// write creates, changes or deletes one object. It returns a description.
func (t *tenant) write(ctx context.Context) (string, error) {
	t.serial++
	name := fmt.Sprintf("h%d", t.serial%most)
	switch t.r.IntN(10) {
	case 0, 1, 2: // running pods
		return "annotations of a running pod", t.patchPod(ctx, fmt.Sprintf("wired%d", t.r.IntN(len(t.wired))))
	case 3, 4:
		return "pod", t.pod(ctx, name)
	case 5:
		return "annotations of a pod", t.patchPod(ctx, name)
	case 6, 7:
		return "Service", t.svc(ctx, name)
	case 8:
		return "endpoint slice", t.slice(ctx, name)
	default:
		return "policy", t.policy(ctx, name)
	}
}

func pick[T any](t *tenant, of ...T) T { return of[t.r.IntN(len(of))] }

// address returns an address; half of them are in use by others.
func (t *tenant) address() netip.Addr {
	switch t.r.IntN(8) {
	case 0:
		return netip.AddrFrom4([4]byte{10, 244, byte(t.r.IntN(3)), byte(t.r.IntN(256))})
	case 1, 2, 3, 4:
		return pick(t, t.values.used...)
	}
	return pick(t, t.values.addresses...)
}

// port returns a port; half of them have a listener.
func (t *tenant) port() int32 {
	if t.r.IntN(2) == 0 {
		return pick[int32](t, sshPort, outsidePort, podPort, hostPort, servicePort)
	}
	return pick(t, t.values.ports...)
}

// junk returns text that is invalid in every field.
func (t *tenant) junk() string {
	return pick(t, "", "null", "{}", "[]", `{"default":null}`, `{"default":{"ip_addresses":[null]}}`, strings.Repeat("[", 10000), strings.Repeat("x", 100000),
		`{"default":{"ip_addresses":["10.244.0.5/99"],"mac_address":"zz"}}`, "\x00\x01\u202e", `"default"`, "true", "1e999", `{"a":`)
}

// pod creates the pod with this name, or deletes it.
func (t *tenant) pod(ctx context.Context, name string) error {
	pods := t.client.CoreV1().Pods(hostile)
	if t.r.IntN(3) == 0 {
		now := int64(0)
		return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
	no, port := false, t.port()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels(), Annotations: t.annotations()},
		Spec: corev1.PodSpec{
			NodeName: pick(t, "node1", "node2", "node3", ""), HostNetwork: t.r.IntN(8) == 0, AutomountServiceAccountToken: &no,
			Containers: []corev1.Container{{Name: "c", Image: "none", Ports: []corev1.ContainerPort{{
				Name: pick(t, "http", "", "x"), ContainerPort: port, HostPort: pick(t, 0, port, port), HostIP: pick(t, "", t.address().String()), Protocol: pick(t, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
			}}}},
		},
	}
	_, err := pods.Create(ctx, p, metav1.CreateOptions{})
	return err
}

func (t *tenant) labels() map[string]string {
	out := map[string]string{"app": pick(t, "web", "new", "guarded", "x")}
	for i := range pick(t, 0, 1, 500) {
		out[fmt.Sprintf("l%d", i)] = "v"
	}
	return out
}

// annotations returns annotations that some component reads, with untrustworthy values.
func (t *tenant) annotations() map[string]string {
	out := map[string]string{}
	for range 1 + t.r.IntN(3) {
		key, value := t.annotation()
		out[key] = value
	}
	return out
}

func (t *tenant) annotation() (key, value string) {
	key = pick(t, annotation.PodNetworks, annotation.PodNetworks, annotation.FirstPod, annotation.DefaultNetwork, annotation.DefaultNetwork,
		"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth", "k8s.v1.cni.cncf.io/networks", annotation.LeavesBy, annotation.HostCIDRs, "k8s.ovn.org/acl-logging")
	if t.r.IntN(4) == 0 {
		return key, t.junk()
	}
	mac, err := net.ParseMAC(pick(t, t.values.macs...))
	if err != nil {
		return key, t.junk()
	}
	p := annotation.Pod{MAC: mac}
	if t.r.IntN(2) == 0 {
		p.Addresses, p.Gateways = t.neighbours()
	} else {
		for range pick(t, 1, 1, 2, 2, 3, 250) {
			a := t.address()
			p.Addresses = append(p.Addresses, netip.PrefixFrom(a, pick(t, a.BitLen(), 24, 0)))
			p.Gateways = append(p.Gateways, t.address())
		}
	}
	switch key {
	case annotation.PodNetworks:
		return key, annotation.FormatPod(p)
	case annotation.FirstPod:
		return key, annotation.FormatFirstPod(p)
	case annotation.DefaultNetwork:
		r := annotation.Request{}
		for _, a := range p.Addresses[:min(len(p.Addresses), 2)] {
			r.Addresses = append(r.Addresses, a.Addr())
		}
		if t.r.IntN(2) == 0 {
			r.MAC = mac
		}
		return key, annotation.FormatRequest(r)
	}
	return key, pick(t, "1", "-1", "1e30", "18446744073709551616", "1T", t.address().String(), t.junk())
}

// neighbours returns what an annotation of the controller's has: one address per family inside a
// node's subnets, with the routers as gateways. Half of the addresses belong to victims, to the
// router or to the management port.
func (t *tenant) neighbours() (addresses []netip.Prefix, gateways []netip.Addr) {
	for _, s := range pick(t, t.values.subnets...) {
		a := plan.RouterAddress(s).Addr()
		gateways = append(gateways, a)
		used := slices.DeleteFunc(slices.Clone(t.values.used), func(u netip.Addr) bool { return !s.Contains(u) })
		used = append(used, a, plan.ManagementAddress(s).Addr())
		if a = pick(t, used...); t.r.IntN(2) == 0 {
			for a = s.Masked().Addr(); a.As16()[15] == 0; {
				b := a.As16()
				b[15] = byte(t.r.IntN(256))
				a = netip.AddrFrom16(b)
				if s.Addr().Is4() {
					a = a.Unmap()
				}
			}
		}
		addresses = append(addresses, netip.PrefixFrom(a, s.Bits()))
	}
	return addresses, gateways
}

// patchPod sets or removes annotations of a pod.
func (t *tenant) patchPod(ctx context.Context, name string) error {
	annotations := map[string]any{}
	for range 1 + t.r.IntN(2) {
		key, value := t.annotation()
		annotations[key] = value
		if t.r.IntN(6) == 0 {
			annotations[key] = nil
		}
	}
	body := annotation.Patch(metav1.ObjectMeta{}, annotations)
	_, err := t.client.CoreV1().Pods(hostile).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// svc creates a Service, or deletes it.
func (t *tenant) svc(ctx context.Context, name string) error {
	services := t.client.CoreV1().Services(hostile)
	if t.r.IntN(2) == 0 {
		if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
			return nil
		}
	}
	dual := corev1.IPFamilyPolicyPreferDualStack
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels(), Annotations: t.annotations()},
		Spec: corev1.ServiceSpec{
			Type: pick(t, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer), IPFamilyPolicy: &dual,
			SessionAffinity: pick(t, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP), PublishNotReadyAddresses: t.r.IntN(2) == 0,
		},
	}
	if t.r.IntN(2) == 0 {
		s.Spec.Selector = map[string]string{"app": "web"}
	}
	for i := range pick(t, 1, 2, 5) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", i), Port: t.port(), TargetPort: intstr.FromInt32(t.port()), Protocol: pick(t, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
		})
	}
	for range pick(t, 0, 1, 3, 10) {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, t.address().String())
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerIP = t.address().String()
		for range pick(t, 0, 1, 3000) {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, t.prefix())
		}
	}
	if s.Spec.Type != corev1.ServiceTypeClusterIP && t.r.IntN(3) == 0 {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	_, err := services.Create(ctx, s, metav1.CreateOptions{})
	return err
}

// prefix returns a random prefix, usually small.
func (t *tenant) prefix() string {
	if t.r.IntN(2) == 0 {
		return fmt.Sprintf("%d.%d.%d.%d/32", 1+t.r.IntN(220), t.r.IntN(256), t.r.IntN(256), t.r.IntN(256))
	}
	return fmt.Sprintf("2001:db8:%x:%x::%x/128", t.r.IntN(65536), t.r.IntN(65536), t.r.IntN(65536))
}

// slice creates an EndpointSlice of a Service, or deletes it.
func (t *tenant) slice(ctx context.Context, name string) error {
	slices := t.client.DiscoveryV1().EndpointSlices(hostile)
	if t.r.IntN(2) == 0 {
		if err := slices.Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
			return nil
		}
	}
	v6, ready, port, text := t.r.IntN(2) == 0, true, t.port(), "p0"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: pick(t, name, "web", "kubernetes", fmt.Sprintf("h%d", t.r.IntN(most)))}},
		AddressType: map[bool]discoveryv1.AddressType{false: discoveryv1.AddressTypeIPv4, true: discoveryv1.AddressTypeIPv6}[v6],
		Ports:       []discoveryv1.EndpointPort{{Name: &text, Port: &port}},
	}
	node := pick(t, "node1", "node2", "node3")
	for range pick(t, 1, 3, 900) {
		a := t.address()
		for a.Is6() != v6 || len(s.Endpoints) > 50 && a.IsLinkLocalUnicast() {
			a = t.address()
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, NodeName: &node,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pick(t, hostile, victim), Name: pick(t, "a", "wired0")},
		})
	}
	_, err := slices.Create(ctx, s, metav1.CreateOptions{})
	return err
}

// policy creates a policy, possibly with many rules, or deletes it.
func (t *tenant) policy(ctx context.Context, name string) error {
	policies := t.client.NetworkingV1().NetworkPolicies(hostile)
	if t.r.IntN(2) == 0 {
		if err := policies.Delete(ctx, name, metav1.DeleteOptions{}); err == nil {
			return nil
		}
	}
	var peers []networkingv1.NetworkPolicyPeer
	for range pick(t, 1, 2, 300) {
		peers = append(peers, t.peer())
	}
	var ports []networkingv1.NetworkPolicyPort
	for i := range pick(t, 0, 1, 1000) {
		port, last := intstr.FromInt32(int32(1+i*60)), int32(1+i*60+t.r.IntN(50))
		ports = append(ports, networkingv1.NetworkPolicyPort{Port: &port, EndPort: &last})
	}
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}},
	}}
	_, err := policies.Create(ctx, p, metav1.CreateOptions{})
	return err
}

func (t *tenant) peer() networkingv1.NetworkPolicyPeer {
	everywhere := &metav1.LabelSelector{}
	switch t.r.IntN(4) {
	case 0:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere, PodSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprint(t.r.IntN(50))}},
		}}}
	case 1:
		b := &networkingv1.IPBlock{CIDR: "::/0"}
		for range pick(t, 0, 2, 4000) {
			b.Except = append(b.Except, fmt.Sprintf("2001:db8:%x:%x::%x/128", t.r.IntN(65536), t.r.IntN(65536), t.r.IntN(65536)))
		}
		if len(b.Except) > 100 && t.serial%10 != 0 {
			b.Except = b.Except[:100]
		}
		return networkingv1.NetworkPolicyPeer{IPBlock: b}
	case 2:
		a := t.address().Unmap()
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}}
	default:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere}
	}
}
