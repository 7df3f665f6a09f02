package ipam

import (
	"errors"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// ErrNodeBehind is returned for a pod if its node's annotation does not have the node's allocated
// subnets. The caller retries when the annotation is right. Plans read the subnets from the
// annotation.
var ErrNodeBehind = errors.New("the node's annotation is about to change")

// PodOf returns the pod as an owner of addresses.
func PodOf(p *corev1.Pod) Pod {
	return Pod{Name: p.Namespace + "/" + p.Name, UID: string(p.UID)}
}

// Pod returns the pod's addresses and MAC address on its node. It allocates them if the pod has
// none in the node's subnets: those in its annotation, or else those that it requests, or else any.
// While the node has no subnets, it returns the zero annotation.Pod.
//
// If annotated addresses are not available, the pod gets others, and conflict is the reason. After
// an error, Pod returns the pod's earlier allocation. podsOf returns the pods of a node.
func (a *Allocator) Pod(
	n *corev1.Node,
	p *corev1.Pod,
	podsOf func(node string) []*corev1.Pod,
) (network annotation.Pod, conflict, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()

	_ = a.holdNode(n, podsOf) // Node returns the error, when the node itself is reconciled
	subnets := a.nodes.Held(n.Name)

	annotated, err := annotation.ParseNodeSubnets(n.Annotations)
	if err != nil {
		return annotation.Pod{}, nil, nil // without subnets the pod has no rows
	}

	if !slices.Equal(annotated, subnets) {
		return annotation.Pod{}, nil, ErrNodeBehind
	}

	pod := PodOf(p)
	a.yieldToAnnotations(p)

	// Keep an allocation whose addresses are all in the node's subnets.
	held := a.pods.Held(pod)
	if len(held) == 0 || !areInside(held, subnets) {
		if held == nil {
			a.unwritten[pod] = true
		}

		conflict, err = a.allocate(n.Name, p, subnets)
	}

	return a.network(pod), conflict, err
}

// yieldToAnnotations releases an allocation that is not written yet if the pod's annotation has
// other addresses by now. Another leader wrote these first, and the pod's interface may have them
// already. The pod then counts as a pod without allocation that has addresses in its annotation.
func (a *Allocator) yieldToAnnotations(p *corev1.Pod) {
	pod := PodOf(p)
	if !a.unwritten[pod] {
		return
	}

	annotated, err := annotation.ParsePod(p.Annotations)
	switch {
	case err != nil: // no addresses are annotated
	case slices.Equal(annotated.Addresses, a.pods.Held(pod)):
		delete(a.unwritten, pod)
	default:
		a.pods.ReleaseOne(pod)
	}
}

// Network returns the pod's allocation, with the routers of its subnets as gateways.
func (a *Allocator) Network(pod Pod) annotation.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()

	return a.network(pod)
}

// network is Network for callers that hold mu.
func (a *Allocator) network(pod Pod) annotation.Pod {
	network := annotation.Pod{Addresses: a.pods.Held(pod), MAC: a.pods.MAC(pod)}
	if len(network.Addresses) == 0 {
		return annotation.Pod{}
	}

	if network.MAC == nil {
		network.MAC = annotation.DerivedMAC(network.Addresses[0].Addr())
	}

	for _, address := range network.Addresses {
		network.Gateways = append(network.Gateways, plan.RouterAddress(address).Addr())
	}

	return network
}

// allocate gives the pod its annotated addresses if they are free, or else the requested ones, or
// else any, and a MAC address. conflict is the reason why it does not get the annotated addresses.
func (a *Allocator) allocate(node string, p *corev1.Pod, subnets []netip.Prefix) (conflict, err error) {
	if err := a.nodes.CheckInside(node); err != nil {
		return nil, err
	}

	request, err := annotation.ParseRequest(p.Annotations)
	if err != nil {
		return nil, err
	}

	pod := PodOf(p)
	previous := a.network(pod)

	if err := a.checkRequest(pod, node, request, subnets); err != nil {
		return nil, err
	}

	if claim := a.claimed(p, subnets); claim != nil {
		_, conflict = a.pods.Allocate(pod, subnets, claim...)
		if conflict == nil {
			return nil, a.holdMAC(pod, node, subnets, previous.MAC, request.MAC)
		}
	}

	if _, err := a.pods.Allocate(pod, subnets, request.Addresses...); err != nil {
		return conflict, err
	}

	return conflict, a.holdMAC(pod, node, subnets, previous.MAC, request.MAC)
}

// claimed returns the annotated addresses of a pod without allocation. It returns nil unless all
// of them are in the node's subnets, at most one per subnet.
func (a *Allocator) claimed(p *corev1.Pod, subnets []netip.Prefix) []netip.Addr {
	annotated, err := annotation.ParsePod(p.Annotations)
	if err != nil || a.pods.Held(PodOf(p)) != nil || !areInside(annotated.Addresses, subnets) {
		return nil
	}

	var out []netip.Addr
	for _, address := range annotated.Addresses {
		out = append(out, address.Addr())
	}

	return out
}

// areInside reports whether all addresses are in the subnets, at most one per subnet.
func areInside(addresses, subnets []netip.Prefix) bool {
	return len(onePerSubnet(addresses, subnets)) == len(addresses)
}

// onePerSubnet returns the first address per subnet that is inside it and has its prefix length.
func onePerSubnet(addresses, subnets []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix

	for _, s := range subnets {
		inside := func(a netip.Prefix) bool { return a.Masked() == s.Masked() }
		if i := slices.IndexFunc(addresses, inside); i >= 0 {
			out = append(out, addresses[i])
		}
	}

	return out
}
