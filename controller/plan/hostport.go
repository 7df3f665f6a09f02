package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// hostPortRows are a load balancer for each protocol, which keeps the client's
// address: the pod's answers leave by the same node.
func hostPortRows(c *Cluster, pod *services.Pod, obj *corev1.Node) ([]Row, error) {
	if pod == nil {
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
	u := shortfall(pod.Refused)
	claims := newClaims(c, pod.Owner, nodes, &u)
	byProtocol := map[corev1.Protocol]map[string]string{}
	for _, port := range pod.Ports {
		for _, f := range claims.keep(port.Protocol, podFronts(pod, port, n)) {
			if byProtocol[port.Protocol] == nil {
				byProtocol[port.Protocol] = map[string]string{}
			}
			backend, _ := pod.Backend(port, f.addr.Addr().Is4())
			byProtocol[port.Protocol][f.addr.String()] = backend.String()
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
func podFronts(pod *services.Pod, port services.HostPort, n *server) []front {
	var out []front
	for _, a := range n.nodePorts {
		if _, ok := pod.Backend(port, a.Is4()); ok && port.Wants(a) {
			out = append(out, front{addr: netip.AddrPortFrom(a, port.Number), of: n, external: true})
		}
	}
	return out
}

// hostPod returns what a pod's host ports mean; the pod's addresses are those of its annotation.
// It returns nil for a pod without host ports, or whose annotation is malformed.
func hostPod(pod *corev1.Pod) *services.Pod {
	var network annotation.Pod
	if err := optional(&network, pod.Annotations, annotation.ParsePod); err != nil {
		return nil
	}
	var addrs []netip.Addr
	for _, p := range network.Addresses {
		addrs = append(addrs, p.Addr())
	}
	return services.NewPod(pod, addrs)
}

// askedHost is what a pod asks for on its node.
type askedHost struct {
	pod   *services.Pod
	ports map[askedPort][]services.HostPort
}

func whatPodAsks(obj *corev1.Pod) askedHost {
	pod := hostPod(obj)
	if pod == nil {
		return askedHost{}
	}
	w := askedHost{pod, map[askedPort][]services.HostPort{}}
	for _, port := range pod.Ports {
		k := askedPort{port.Protocol, port.Number, true}
		w.ports[k] = append(w.ports[k], port)
	}
	return w
}

// asks reports whether one of the host ports is that front of the node.
func (w askedHost) asks(proto corev1.Protocol, addr netip.AddrPort, n *server) bool {
	return slices.ContainsFunc(w.ports[askedPort{proto, addr.Port(), true}], func(port services.HostPort) bool {
		return slices.ContainsFunc(podFronts(w.pod, port, n), func(f front) bool { return f.addr == addr })
	})
}
