package service

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// HasHostPorts says whether a pod asks for front ends at all. A pod in the
// host's own network needs none: its sockets are the host's.
func HasHostPorts(pod *corev1.Pod) bool {
	return !pod.Spec.HostNetwork && len(hostPorts(pod)) > 0
}

// hostPorts are those of containers that run as long as the pod does.
func hostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 && p.HostPort <= 65535 && p.ContainerPort > 0 && p.ContainerPort <= 65535 {
				out = append(out, p)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out[:min(len(out), annotation.MaxHostPorts)]
}

// planPod plans the host ports of a pod of this node: each is a node port of
// this node alone, with the pod behind it.
func planPod(pod *corev1.Pod, n *Node) *Plan {
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if over || pod.Spec.HostNetwork || pod.Spec.NodeName != n.Name || !n.NodePorts {
		return nil
	}
	p := &Plan{Created: pod.CreationTimestamp.Time}
	ips := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	for _, port := range hostPorts(pod) {
		proto := protocolNumber(port.Protocol)
		for _, is4 := range []bool{true, false} {
			pods := parse(is4, ips...)
			if proto == 0 || len(pods) == 0 {
				continue
			}
			backend := netip.AddrPortFrom(pods[0], uint16(port.ContainerPort))
			g := Group{Proto: proto, Backends: []netip.AddrPort{backend}}
			if n.Local {
				g.Redirect = g.Backends
			}
			p.add(g, hostPortFrontEnds(frontEnds{proto: proto, node: n}, port, is4))
			if proto == protoUDP {
				p.UDP = append(p.UDP, backend)
			}
		}
	}
	return p
}

// hostPortFrontEnds: a host port without an address, or with the unspecified
// one, is on every address.
func hostPortFrontEnds(f frontEnds, port corev1.ContainerPort, is4 bool) []FrontEnd {
	number := uint16(port.HostPort)
	if port.HostIP == "" {
		return f.nodePort(number, is4, f.node.outside(is4))
	}
	only := parse(is4, port.HostIP)
	switch {
	case len(only) == 0:
		return nil
	case only[0].IsUnspecified():
		return f.nodePort(number, is4, f.node.outside(is4))
	case !f.node.servable(only[0]):
		return f.internal(number, only)
	}
	return f.external(number, only)
}
