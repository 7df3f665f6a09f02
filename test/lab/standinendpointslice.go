package lab

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceSpec describes a Service with its endpoints.
type ServiceSpec struct {
	Namespace, Name string // Namespace default "default"
	Type            corev1.ServiceType
	Ports           []corev1.ServicePort // names must differ; TargetPort must be a number
	Pods            []*Pod
	Hosts           []*Node                           // endpoints in a node's host network
	Others          []netip.Addr                      // other endpoints
	Each            func(*Pod, *discoveryv1.Endpoint) // modifies a pod's endpoint; nil: ready
	Change          func(*corev1.ServiceSpec)         // modifies the Service; may be nil
	Ingress         []netip.Addr                      // announced addresses of a load balancer
}

// AddService creates a dual-stack Service and plays the EndpointSlice controller: one slice per
// family with endpoints, all ready.
func (l *Lab) AddService(ctx context.Context, s ServiceSpec) (*corev1.Service, error) {
	if s.Namespace == "" {
		s.Namespace = metav1.NamespaceDefault
	}

	client, err := l.Kubernetes()
	if err != nil {
		return nil, err
	}

	dual := corev1.IPFamilyPolicyRequireDualStack

	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec:       corev1.ServiceSpec{Type: s.Type, IPFamilyPolicy: &dual, Ports: s.Ports},
	}
	if s.Change != nil {
		s.Change(&object.Spec)
	}

	svc, err := client.CoreV1().Services(s.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("add service %s/%s: %w", s.Namespace, s.Name, err)
	}

	if len(s.Ingress) > 0 {
		for _, a := range s.Ingress {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a.String()})
		}

		if svc, err = client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("announce service %s/%s: %w", s.Namespace, s.Name, err)
		}
	}

	for _, slice := range standinSlices(svc, s) {
		if _, err := client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("add service %s/%s: %w", s.Namespace, s.Name, err)
		}
	}

	return svc, nil
}

// SetEndpoints replaces the endpoints of a Service by the pods and hosts of s, in the same
// families.
func (l *Lab) SetEndpoints(ctx context.Context, svc *corev1.Service, s ServiceSpec) error {
	client, err := l.Kubernetes()
	if err != nil {
		return err
	}

	for _, slice := range standinSlices(svc, s) {
		if _, err := client.DiscoveryV1().EndpointSlices(svc.Namespace).Update(ctx, slice, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("set endpoints of %s/%s: %w", svc.Namespace, svc.Name, err)
		}
	}

	return nil
}

// DelService removes a Service and its slices.
func (l *Lab) DelService(ctx context.Context, namespace, name string) error {
	client, err := l.Kubernetes()
	if err != nil {
		return err
	}

	if err := client.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete service %s/%s: %w", namespace, name, err)
	}

	err = client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if err != nil {
		return fmt.Errorf("delete service %s/%s: %w", namespace, name, err)
	}

	return nil
}

func standinSlices(svc *corev1.Service, s ServiceSpec) []*discoveryv1.EndpointSlice {
	var slices []*discoveryv1.EndpointSlice

	for _, family := range []struct {
		kind   discoveryv1.AddressType
		of     func(*Pod) netip.Addr
		ofHost func(*Node) netip.Addr
	}{
		{discoveryv1.AddressTypeIPv4, (*Pod).IP4, func(n *Node) netip.Addr { return n.IP4 }},
		{discoveryv1.AddressTypeIPv6, (*Pod).IP6, func(n *Node) netip.Addr { return n.IP6 }},
	} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name:   svc.Name + "-" + strings.ToLower(string(family.kind)),
				Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name, discoveryv1.LabelManagedBy: "ovn-ebpf-lab"},
				OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(svc, corev1.SchemeGroupVersion.WithKind("Service")),
				},
			},
			AddressType: family.kind,
		}
		for _, port := range svc.Spec.Ports {
			target := port.TargetPort.IntVal
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &port.Name, Protocol: &port.Protocol, Port: &target})
		}

		yes, no := true, false
		ready := discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}

		for _, p := range s.Pods {
			if a := family.of(p); a.IsValid() {
				ep := discoveryv1.Endpoint{
					Addresses: []string{a.String()}, NodeName: &p.Node, Conditions: ready,
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
				}
				if s.Each != nil {
					s.Each(p, &ep)
				}

				if svc.Spec.PublishNotReadyAddresses {
					ep.Conditions.Ready = &yes
				}

				slice.Endpoints = append(slice.Endpoints, ep)
			}
		}

		for _, n := range s.Hosts {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{family.ofHost(n).String()}, NodeName: &n.Name, Conditions: ready,
			})
		}

		for _, a := range s.Others {
			if a.Is4() == (family.kind == discoveryv1.AddressTypeIPv4) {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a.String()}, Conditions: ready})
			}
		}

		if len(slice.Endpoints) > 0 {
			slices = append(slices, slice)
		}
	}

	return slices
}
