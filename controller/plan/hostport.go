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

// hostPortRows returns a load balancer for each protocol. It keeps the client's address, because
// the pod's replies leave by the same node.
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

	if why := c.refused(pod.Key); why != nil {
		return nil, newUnserved(why)
	}

	u := shortfall(pod.Refused)
	claims := newClaims(c, pod.Owner, nodes, &u)
	byProtocol := map[corev1.Protocol]map[string]string{}

	for _, port := range pod.Ports {
		for _, f := range claims.keepOwned(port.Protocol, podFronts(pod, port, n)) {
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
			Groups:   []string{clusterLBGroup},
			Name:     "HostPort_" + pod.Namespace + "/" + pod.Name + "_" + string(proto),
			Protocol: strings.ToLower(string(proto)),
			VIPs:     vips,
			Options:  options,
		})
	}

	return rows, newUnserved(u...)
}

// podFronts returns the addresses and ports at which the port is served.
func podFronts(pod *services.Pod, port services.HostPort, n *server) []frontend {
	var out []frontend

	for _, a := range n.nodePorts {
		if _, ok := pod.Backend(port, a.Is4()); ok && port.Wants(a) {
			out = append(out, frontend{addr: netip.AddrPortFrom(a, port.Number), of: n, external: true})
		}
	}

	return out
}

// hostPod returns the host ports of a pod, with the addresses of its annotation. It returns nil for
// a pod without host ports and for a malformed annotation.
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

// hostRequest lists the frontends that a pod requests on its node.
type hostRequest struct {
	pod   *services.Pod
	ports map[requestedPort][]services.HostPort
}

func podRequest(obj *corev1.Pod) hostRequest {
	pod := hostPod(obj)
	if pod == nil {
		return hostRequest{}
	}

	w := hostRequest{pod, map[requestedPort][]services.HostPort{}}
	for _, port := range pod.Ports {
		k := requestedPort{port.Protocol, port.Number, true}
		w.ports[k] = append(w.ports[k], port)
	}

	return w
}

// requests reports whether one of the host ports is this frontend of the node.
func (w hostRequest) requests(proto corev1.Protocol, addr netip.AddrPort, n *server) bool {
	same := func(f frontend) bool { return f.addr == addr }

	return slices.ContainsFunc(w.ports[requestedPort{proto, addr.Port(), true}],
		func(port services.HostPort) bool { return slices.ContainsFunc(podFronts(w.pod, port, n), same) })
}
