package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// HostPorts are the pod's containers with nothing but those of their ports that
// are served on the node's addresses; containers without any are left out. Of
// init containers those count that run as long as the pod does.
func HostPorts(p *corev1.Pod) []corev1.Container {
	var out []corev1.Container
	take := func(c *corev1.Container) {
		var ports []corev1.ContainerPort
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				ports = append(ports, corev1.ContainerPort{
					HostPort: port.HostPort, HostIP: port.HostIP, ContainerPort: port.ContainerPort, Protocol: port.Protocol,
				})
			}
		}
		if len(ports) > 0 {
			out = append(out, corev1.Container{Ports: ports})
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			take(c)
		}
	}
	for i := range p.Spec.Containers {
		take(&p.Spec.Containers[i])
	}
	return out
}

// hostPorts are those within the bounds.
func hostPorts(p *corev1.Pod) []corev1.ContainerPort {
	all := allHostPorts(p)
	return all[:min(len(all), annotation.MaxHostPorts)]
}

func allHostPorts(p *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	for _, c := range HostPorts(p) {
		out = append(out, c.Ports...)
	}
	return out
}

// HasHostPorts says whether the pod's rows depend on its node's addresses.
func HasHostPorts(p *corev1.Pod) bool { return NeedsPort(p) && len(HostPorts(p)) > 0 }

// hostPortRows are a load balancer for each protocol, which keeps the client's
// address: the pod's answers leave by the same node.
func hostPortRows(c *Cluster, pod *corev1.Pod, obj *corev1.Node, addresses []netip.Prefix) ([]Row, error) {
	if !HasHostPorts(pod) {
		return nil, nil
	}
	nodes := c.servers()
	n := nodes.byName[obj.Name]
	if n == nil {
		_, err := parseNode(obj, c.Config)
		if err != nil {
			err = fmt.Errorf("node %q: %w", obj.Name, err)
		}
		return nil, err
	}
	var u shortfall
	claims := newClaims(c, claimant{key: PodKey(pod.Namespace, pod.Name), created: pod.CreationTimestamp.Time}, nodes, &u)
	if all := len(allHostPorts(pod)); all > annotation.MaxHostPorts {
		u.add("the last %d host ports: a pod has at most %d", all-annotation.MaxHostPorts, annotation.MaxHostPorts)
	}
	byProtocol := map[corev1.Protocol]map[string]string{}
	for _, port := range hostPorts(pod) {
		proto := annotation.Protocol(port.Protocol)
		for _, f := range claims.keep(proto, podFronts(port, n, addresses)) {
			if byProtocol[proto] == nil {
				byProtocol[proto] = map[string]string{}
			}
			backend, _ := firstOfFamily(addresses, f.addr.Addr().Is4())
			byProtocol[proto][f.addr.String()] = netip.AddrPortFrom(backend.Addr(), uint16(port.ContainerPort)).String()
		}
	}
	var rows []Row
	for proto, vips := range byProtocol {
		options := loadBalancerOptions(proto)
		options["skip_snat"] = "true"
		rows = append(rows, LoadBalancer{
			Groups: []string{clusterLBGroup}, Name: "HostPort_" + pod.Namespace + "/" + pod.Name + "_" + string(proto),
			Protocol: strings.ToLower(string(proto)), VIPs: vips, Options: options,
		})
	}
	return rows, unserved(u...)
}

// podFronts are where the port is served.
func podFronts(port corev1.ContainerPort, n *server, addresses []netip.Prefix) []front {
	var out []front
	for _, a := range n.nodePorts {
		if _, ok := firstOfFamily(addresses, a.Is4()); ok && servesHostPort(port, a) {
			out = append(out, front{addr: netip.AddrPortFrom(a, uint16(port.HostPort)), of: n, external: true})
		}
	}
	return out
}

// servesHostPort says whether the port is wanted on the node's address.
func servesHostPort(port corev1.ContainerPort, a netip.Addr) bool {
	want, err := netip.ParseAddr(port.HostIP)
	return err != nil || want.IsUnspecified() && (want.Is4() == a.Is4() || want.Is6()) || want == a
}

// askedHost is what a pod asks for on its node.
type askedHost struct {
	addresses []netip.Prefix
	ports     map[askedPort][]corev1.ContainerPort
}

func whatPodAsks(pod *corev1.Pod) askedHost {
	var network annotation.Pod
	if err := optional(&network, pod.Annotations, annotation.ParsePod); err != nil || !NeedsPort(pod) {
		return askedHost{}
	}
	w := askedHost{network.Addresses, map[askedPort][]corev1.ContainerPort{}}
	for _, port := range hostPorts(pod) {
		k := askedPort{annotation.Protocol(port.Protocol), port.HostPort, true}
		w.ports[k] = append(w.ports[k], port)
	}
	return w
}

// asks reports whether one of the host ports is that front of the node.
func (w askedHost) asks(proto corev1.Protocol, addr netip.AddrPort, n *server) bool {
	return slices.ContainsFunc(w.ports[askedPort{proto, int32(addr.Port()), true}], func(port corev1.ContainerPort) bool {
		return slices.ContainsFunc(podFronts(port, n, w.addresses), func(f front) bool { return f.addr == addr })
	})
}
