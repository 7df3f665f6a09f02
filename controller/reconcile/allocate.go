package reconcile

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// allocatePod: what a pod was given stays its own, whatever becomes of its
// annotation. Addresses that an annotation came with are the pod's unless another
// has them or they are not of its node; then it gets others. A node whose
// annotation is not what the books say has none to give yet: it is put right first.
func (b *books) allocatePod(c *plan.Cluster, p *corev1.Pod) (*patch, error) {
	n := c.Node(p.Spec.NodeName)
	if n == nil {
		return nil, nil
	}
	_ = b.holdNode(c, n) // its error is told where the node's key is reconciled, which may be later
	subnets := b.nodes.Held(n.Name)
	said, err := annotation.ParseNodeSubnets(n.Annotations)
	if err != nil || !slices.Equal(said, subnets) {
		return nil, nil
	}
	pod := owner(p)
	network, err := annotation.ParsePod(p.Annotations)
	held := b.pods.Held(pod)
	if err == nil && inside(network.Addresses, subnets) && (held == nil || slices.Equal(held, network.Addresses)) {
		if err = b.holdPod(pod, network); err == nil {
			// It may come from the first generation, or from before its annotation was asked for.
			return newPatch(&p.ObjectMeta, b.podAnnotations(network, p.Annotations)), nil
		}
		b.tell(plan.PodKey(p.Namespace, p.Name), reasonReallocated, err)
	}
	given, err := b.give(n, p, subnets, network)
	if _, said := p.Annotations[annotation.PodNetworks]; err != nil && said && b.pods.Held(pod) == nil {
		// Else the next leader would take it for the pod's.
		return &patch{uid: p.UID, remove: []string{annotation.PodNetworks, annotation.FirstPod}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", n.Name, err)
	}
	return newPatch(&p.ObjectMeta, b.podAnnotations(given, nil)), nil
}

// podAnnotations are what says which addresses a pod has, without those that it has already.
func (b *books) podAnnotations(network annotation.Pod, has map[string]string) map[string]string {
	formats := map[string]func(annotation.Pod) string{annotation.PodNetworks: annotation.FormatPod}
	if b.first {
		formats[annotation.FirstPod] = annotation.FormatFirstPod
	}
	out := map[string]string{}
	for name, format := range formats {
		if _, already := has[name]; !already {
			out[name] = format(network)
		}
	}
	return out
}

// give allocates what the pod asks for, or what there is.
func (b *books) give(n *corev1.Node, p *corev1.Pod, subnets []netip.Prefix, had annotation.Pod) (annotation.Pod, error) {
	if err := b.nodes.Outside(n.Name); err != nil {
		return annotation.Pod{}, err
	}
	request, err := annotation.ParseRequest(p.Annotations)
	if err != nil {
		return annotation.Pod{}, err
	}
	if err := b.checkMAC(n, request, subnets); err != nil {
		return annotation.Pod{}, err
	}
	addresses, err := b.pods.Allocate(owner(p), subnets, request.Addresses...)
	if err != nil {
		return annotation.Pod{}, err
	}
	network := annotation.Pod{Addresses: addresses, MAC: macOf(addresses, request, had)}
	for _, s := range subnets {
		network.Gateways = append(network.Gateways, plan.RouterAddress(s).Addr())
	}
	return network, b.holdPod(owner(p), network)
}

// macOf is the MAC address that is asked for, else what the first address had
// already, else what is derived from it.
func macOf(addresses []netip.Prefix, r annotation.Request, had annotation.Pod) net.HardwareAddr {
	switch {
	case r.MAC != nil:
		return r.MAC
	case len(had.Addresses) > 0 && had.Addresses[0] == addresses[0] && annotation.CheckMAC(had.MAC) == nil:
		return had.MAC
	}
	return plan.MAC(addresses[0].Addr())
}

// holdPod holds addresses and, where it is not derived from them, the MAC address.
func (b *books) holdPod(pod ipam.Pod, network annotation.Pod) error {
	if err := annotation.CheckMAC(network.MAC); err != nil {
		return err
	}
	if plan.MAC(network.Addresses[0].Addr()).String() != network.MAC.String() {
		if err := b.pods.HoldMAC(pod, network.Addresses[0], network.MAC); err != nil {
			return err
		}
	}
	return b.pods.Hold(pod, network.Addresses)
}

// checkMAC refuses a MAC address that is another's by the way it is made: a
// pod's that is derived from an address, the router's or the management port's.
func (b *books) checkMAC(n *corev1.Node, r annotation.Request, subnets []netip.Prefix) error {
	if r.MAC == nil {
		return nil
	}
	for _, a := range r.Addresses {
		if plan.MAC(a).String() == r.MAC.String() {
			return nil
		}
	}
	management, _ := annotation.ParseManagementMAC(n.Annotations) // absent or malformed: not in use
	derived := plan.MAC(subnets[0].Addr())[:2]
	if slices.Equal(r.MAC[:2], derived) || slices.Equal(r.MAC, management) {
		return fmt.Errorf("%w: MAC address %s is the node's own, or kept for the address that it is made from", ipam.ErrInvalid, r.MAC)
	}
	return nil
}

func inside(addresses, subnets []netip.Prefix) bool {
	for _, a := range addresses {
		if !slices.ContainsFunc(subnets, func(s netip.Prefix) bool { return s.Masked() == a.Masked() }) {
			return false
		}
	}
	return len(addresses) > 0
}
