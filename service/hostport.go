package service

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// HostPort is a port of a pod that is served at addresses of its node.
type HostPort struct {
	Protocol  corev1.Protocol // TCP, UDP or SCTP
	Number    uint16          // on the node
	Container uint16          // of the pod
	At        netip.Addr      // unspecified: all addresses of its family; zero: all addresses of the node
}

// Pod is a pod whose host ports are served at addresses of its node.
type Pod struct {
	Owner
	Node    string
	Ports   []HostPort // within the bounds
	Refused []error    // parts that are not served, with the reason

	addrs []netip.Addr
}

// NewPod returns the meaning of the pod's host ports, or nil if it has none. addrs are the pod's
// own addresses; the first of each family is used. Callers that need only the ports may pass nil.
func NewPod(pod *corev1.Pod, addrs []netip.Addr) *Pod {
	if !HasHostPorts(pod) {
		return nil
	}

	p := &Pod{Owner: OwnerOfPod(pod), Node: pod.Spec.NodeName, addrs: addrs}
	p.Ports, p.Refused = HostPorts(pod)

	return p
}

// HasHostPorts reports whether a pod needs host ports. Such a pod is bound to a node, has its own
// network namespace and has not ended.
func HasHostPorts(pod *corev1.Pod) bool {
	return pod != nil && pod.Spec.NodeName != "" && !pod.Spec.HostNetwork &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed && hasHostPort(pod)
}

// hasHostPort reports whether HostPortContainers returns a container.
func hasHostPort(pod *corev1.Pod) bool {
	declares := func(c *corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}

	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; runsBeside(c) && declares(c) {
			return true
		}
	}

	for i := range pod.Spec.Containers {
		if declares(&pod.Spec.Containers[i]) {
			return true
		}
	}

	return false
}

// runsBeside reports whether an init container runs as long as the pod: it is a sidecar container.
func runsBeside(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// Backend returns the pod's own address and port for a host port, or false if the pod has no
// address of the family.
func (p *Pod) Backend(port HostPort, is4 bool) (netip.AddrPort, bool) {
	own := OfFamily(p.addrs, is4)
	if len(own) == 0 {
		return netip.AddrPort{}, false
	}

	return netip.AddrPortFrom(own[0], port.Container), true
}

// podIPs returns the addresses in the pod's status.
func podIPs(pod *corev1.Pod) []netip.Addr {
	texts := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		texts = append(texts, ip.IP)
	}

	return parseAddrs(texts...)
}

// HostPorts returns a pod's host ports within the bounds, and errors for those that are not
// served.
func HostPorts(pod *corev1.Pod) (ports []HostPort, refused []error) {
	if !HasHostPorts(pod) {
		return nil, nil
	}

	total := 0

	for _, c := range HostPortContainers(pod) {
		for _, p := range c.Ports {
			total++
			if total > MaxHostPorts {
				continue // only counted, for the error below
			}

			port, err := newHostPort(p)
			if err != nil {
				refused = append(refused, err)
				continue
			}

			ports = append(ports, port)
		}
	}

	if total > MaxHostPorts {
		refused = append(refused,
			fmt.Errorf("the last %d host ports: a pod has at most %d", total-MaxHostPorts, MaxHostPorts))
	}

	return ports, refused
}

// newHostPort returns an error for a port that cannot be served.
func newHostPort(p corev1.ContainerPort) (HostPort, error) {
	out := HostPort{
		Protocol:  Protocol(p.Protocol),
		Number:    portNumber(p.HostPort),
		Container: portNumber(p.ContainerPort),
	}
	switch {
	case out.Number == 0 || out.Container == 0 || !isKnownProtocol(out.Protocol):
		return out, fmt.Errorf("host port %d: container port %d, protocol %q",
			p.HostPort, p.ContainerPort, p.Protocol)
	case p.HostIP == "":
		return out, nil
	}

	a, err := netip.ParseAddr(p.HostIP)
	if err != nil || a.Zone() != "" {
		// The API server does not validate host IPs.
		return out, fmt.Errorf("host port %d: host IP %q is not an address", p.HostPort, p.HostIP)
	}

	out.At = a.Unmap()

	return out, nil
}

// Wants reports whether the port must be served at an address of the pod's node.
func (p HostPort) Wants(a netip.Addr) bool { return p.At == a || p.Everywhere(a.Is4()) }

// Everywhere reports whether the port must be served at every address of the family of the pod's
// node. As in the portmap plugin, the unspecified address means all addresses of its own family
// only.
func (p HostPort) Everywhere(is4 bool) bool {
	return !p.At.IsValid() || p.At.IsUnspecified() && p.At.Is4() == is4
}

// HostPortContainers returns the pod's containers that have host ports, reduced to these ports,
// for stores that keep nothing else. Of init containers it includes only those that run as long
// as the pod.
func HostPortContainers(pod *corev1.Pod) []corev1.Container {
	var out []corev1.Container

	take := func(c *corev1.Container) {
		var ports []corev1.ContainerPort

		for _, p := range c.Ports {
			if p.HostPort != 0 {
				ports = append(ports, corev1.ContainerPort{
					HostPort:      p.HostPort,
					HostIP:        p.HostIP,
					ContainerPort: p.ContainerPort,
					Protocol:      p.Protocol,
				})
			}
		}

		if len(ports) > 0 {
			out = append(out, corev1.Container{Ports: ports})
		}
	}

	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; runsBeside(c) {
			take(c)
		}
	}

	for i := range pod.Spec.Containers {
		take(&pod.Spec.Containers[i])
	}

	return out
}
