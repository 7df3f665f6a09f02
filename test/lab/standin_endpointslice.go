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

// ServiceSpec is a Service to make, with the pods behind it.
type ServiceSpec struct {
	Namespace, Name string // Namespace default "default"
	Type            corev1.ServiceType
	Ports           []corev1.ServicePort // names must differ; TargetPort must be a number
	Pods            []*Pod
}

// AddService makes a dual-stack Service and plays the EndpointSlice controller:
// one slice per family that has endpoints, all ready.
func (l *Lab) AddService(ctx context.Context, s ServiceSpec) (*corev1.Service, error) {
	if s.Namespace == "" {
		s.Namespace = metav1.NamespaceDefault
	}
	client, err := l.Kubernetes()
	if err != nil {
		return nil, err
	}
	dual := corev1.IPFamilyPolicyRequireDualStack
	svc, err := client.CoreV1().Services(s.Namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec:       corev1.ServiceSpec{Type: s.Type, IPFamilyPolicy: &dual, Ports: s.Ports},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("add service %s/%s: %w", s.Namespace, s.Name, err)
	}
	for _, slice := range standinSlices(svc, s.Pods) {
		if _, err := client.DiscoveryV1().EndpointSlices(s.Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("add service %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	return svc, nil
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

func standinSlices(svc *corev1.Service, pods []*Pod) []*discoveryv1.EndpointSlice {
	var slices []*discoveryv1.EndpointSlice
	for _, family := range []struct {
		kind discoveryv1.AddressType
		of   func(*Pod) netip.Addr
	}{{discoveryv1.AddressTypeIPv4, (*Pod).IP4}, {discoveryv1.AddressTypeIPv6, (*Pod).IP6}} {
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
		for _, p := range pods {
			if a := family.of(p); a.IsValid() {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{a.String()}, NodeName: &p.Node,
					Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
					TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name},
				})
			}
		}
		if len(slice.Endpoints) > 0 {
			slices = append(slices, slice)
		}
	}
	return slices
}
