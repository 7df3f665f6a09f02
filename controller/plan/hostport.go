package plan

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// hostPortRows returns the load balancers of a pod's host ports on its node, one for each protocol.
// The frontends are addresses of the node, but all nodes have the load balancers, because clients
// may be on any node. They keep the client's address, because the pod's replies leave by the same
// node. pod is nil for a pod without host ports. obj is the pod's node.
func hostPortRows(c *Cluster, pod *services.Pod, obj *corev1.Node) ([]Row, error) {
	if pod == nil {
		return nil, nil
	}

	nodes := c.serviceNodes()

	n := nodes.byName[obj.Name]
	if n == nil { // the node has no switch or a malformed annotation: only the latter is an error
		_, err := parseNode(obj, c.Config)
		if err != nil {
			err = fmt.Errorf("node %q: %w", obj.Name, err)
		}

		return nil, err
	}

	if beyondBudget := c.refused(pod.Key); beyondBudget != nil {
		return nil, newUnserved(beyondBudget)
	}

	unserved := shortfall(pod.Refused)
	arbiter := newArbiter(c, pod.Owner, nodes, &unserved)
	byProtocol := map[corev1.Protocol]map[string]string{} // VIP → backend

	for _, port := range pod.Ports {
		for _, f := range arbiter.grant(port.Protocol, hostPortFrontends(pod, port, n)) {
			if byProtocol[port.Protocol] == nil {
				byProtocol[port.Protocol] = map[string]string{}
			}

			backend, _ := pod.Backend(port, f.addr.Addr().Is4()) // hostPortFrontends has checked the family
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

	return rows, newUnserved(unserved...)
}

// hostPortFrontends returns the frontends of a host port on the pod's node.
func hostPortFrontends(pod *services.Pod, port services.HostPort, n *serviceNode) []frontend {
	var out []frontend

	for _, a := range n.nodePortAddresses {
		if _, ok := pod.Backend(port, a.Is4()); ok && port.Wants(a) {
			out = append(out, frontend{addr: netip.AddrPortFrom(a, port.Number), node: n, external: true})
		}
	}

	return out
}

// hostPod returns the pod's host ports, with its annotated addresses as backends. It returns nil
// for a pod without host ports and for a malformed annotation.
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
