package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// HasHostPorts reports whether the pod's rows depend on its node's addresses.
func HasHostPorts(p *corev1.Pod) bool { return NeedsPort(p) && len(services.HostPortContainers(p)) > 0 }

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
	ports, refused := services.HostPorts(pod)
	u := shortfall(refused)
	claims := newClaims(c, services.OwnerOfPod(pod), nodes, &u)
	byProtocol := map[corev1.Protocol]map[string]string{}
	for _, port := range ports {
		for _, f := range claims.keep(port.Protocol, podFronts(port, n, addresses)) {
			if byProtocol[port.Protocol] == nil {
				byProtocol[port.Protocol] = map[string]string{}
			}
			backend, _ := firstOfFamily(addresses, f.addr.Addr().Is4())
			byProtocol[port.Protocol][f.addr.String()] = netip.AddrPortFrom(backend.Addr(), port.Container).String()
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
func podFronts(port services.HostPort, n *server, addresses []netip.Prefix) []front {
	var out []front
	for _, a := range n.nodePorts {
		if _, ok := firstOfFamily(addresses, a.Is4()); ok && port.Wants(a) {
			out = append(out, front{addr: netip.AddrPortFrom(a, port.Number), of: n, external: true})
		}
	}
	return out
}

// askedHost is what a pod asks for on its node.
type askedHost struct {
	addresses []netip.Prefix
	ports     map[askedPort][]services.HostPort
}

func whatPodAsks(pod *corev1.Pod) askedHost {
	var network annotation.Pod
	if err := optional(&network, pod.Annotations, annotation.ParsePod); err != nil || !NeedsPort(pod) {
		return askedHost{}
	}
	w := askedHost{network.Addresses, map[askedPort][]services.HostPort{}}
	ports, _ := services.HostPorts(pod)
	for _, port := range ports {
		k := askedPort{port.Protocol, port.Number, true}
		w.ports[k] = append(w.ports[k], port)
	}
	return w
}

// asks reports whether one of the host ports is that front of the node.
func (w askedHost) asks(proto corev1.Protocol, addr netip.AddrPort, n *server) bool {
	return slices.ContainsFunc(w.ports[askedPort{proto, addr.Port(), true}], func(port services.HostPort) bool {
		return slices.ContainsFunc(podFronts(port, n, w.addresses), func(f front) bool { return f.addr == addr })
	})
}
