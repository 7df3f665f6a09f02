package reconcile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// errNodeBehind is returned for a pod whose node's annotation does not name the subnets that
// the node holds. The pod's rows stay as they are: the node's key puts the annotation right,
// and that change brings the pod's key again.
var errNodeBehind = errors.New("the node's annotation is about to change")

// allocatePod gives the pod addresses and a MAC address, once, and returns the patch that
// makes its annotations say exactly that. An annotation is never trusted for what the pod
// holds already. A pod that holds nothing may come with addresses (see claim).
func (b *books) allocatePod(c *plan.Cluster, p *corev1.Pod) (*patch, error) {
	n := c.Node(p.Spec.NodeName)
	if n == nil {
		return nil, nil
	}
	_ = b.holdNode(c, n) // its error is told where the node's key is reconciled, which may be later
	subnets := b.nodes.Held(n.Name)
	said, err := annotation.ParseNodeSubnets(n.Annotations)
	if err != nil {
		return nil, nil // without subnets the pod has no rows
	}
	if !slices.Equal(said, subnets) {
		return nil, errNodeBehind
	}
	pod := owner(p)
	b.yield(p)
	if held := b.pods.Held(pod); len(onePerSubnet(held, subnets)) != max(len(held), 1) {
		if held == nil {
			b.unwritten[pod] = true
		}
		if err := b.give(n.Name, p, subnets); err != nil {
			if b.pods.Held(pod) == nil && annotated(p.Annotations, nil, annotation.PodNetworks, annotation.FirstPod) {
				// Else the next leader would take it for the pod's.
				return &patch{of: &p.ObjectMeta, remove: []string{annotation.PodNetworks, annotation.FirstPod}}, nil
			}
			return nil, fmt.Errorf("node %q: %w", n.Name, err)
		}
	}
	return b.restore(p, b.network(pod)), nil
}

// yield releases what was chosen for a pod and not written yet if its annotation says something
// else by now: another leader was quicker, and the pod's interface may have that already. The
// pod then comes with addresses, like any other that holds nothing.
func (b *books) yield(p *corev1.Pod) {
	pod := owner(p)
	if !b.unwritten[pod] {
		return
	}
	said, err := annotation.ParsePod(p.Annotations)
	switch {
	case err != nil:
	case slices.Equal(said.Addresses, b.pods.Held(pod)):
		delete(b.unwritten, pod)
	default:
		b.pods.ReleaseOne(pod)
	}
}

// network is what the pod holds, with the routers of its subnets as its gateways.
func (b *books) network(pod ipam.Pod) annotation.Pod {
	network := annotation.Pod{Addresses: b.pods.Held(pod), MAC: b.pods.MAC(pod)}
	if len(network.Addresses) == 0 {
		return annotation.Pod{}
	}
	if network.MAC == nil {
		network.MAC = plan.MAC(network.Addresses[0].Addr())
	}
	for _, a := range network.Addresses {
		network.Gateways = append(network.Gateways, plan.RouterAddress(a).Addr())
	}
	return network
}

// restore returns the patch after which the pod's annotations say what it holds and nothing
// else, nil if they do. The first generation's annotation goes if it says something else and
// this controller does not write it.
func (b *books) restore(p *corev1.Pod, network annotation.Pod) *patch {
	want := map[string]string{}
	var remove []string
	if text := annotation.FormatPod(network); p.Annotations[annotation.PodNetworks] != text {
		want[annotation.PodNetworks] = text
	}
	text, said := annotation.FormatFirstPod(network), p.Annotations[annotation.FirstPod]
	switch _, has := p.Annotations[annotation.FirstPod]; {
	case said == text:
	case b.first:
		want[annotation.FirstPod] = text
	case has:
		remove = append(remove, annotation.FirstPod)
	}
	if len(want) == 0 && len(remove) == 0 {
		return nil
	}
	return &patch{of: &p.ObjectMeta, annotations: want, remove: remove}
}

// give allocates what the pod comes with, else what it requests, else what there is.
func (b *books) give(node string, p *corev1.Pod, subnets []netip.Prefix) error {
	if err := b.nodes.Outside(node); err != nil {
		return err
	}
	request, err := annotation.ParseRequest(p.Annotations)
	if err != nil {
		return err
	}
	pod, had := owner(p), b.network(owner(p))
	if err := b.checkRequest(pod, node, request, subnets); err != nil {
		return err
	}
	if claim := b.claim(p, subnets); claim != nil {
		_, err := b.pods.Allocate(pod, subnets, claim...)
		if err == nil {
			return b.holdMAC(pod, node, subnets, had.MAC, request.MAC)
		}
		b.tell(plan.PodKey(p.Namespace, p.Name), reasonReallocated, err)
	}
	if _, err := b.pods.Allocate(pod, subnets, request.Addresses...); err != nil {
		return err
	}
	return b.holdMAC(pod, node, subnets, had.MAC, request.MAC)
}

// claim returns the addresses that the annotation of a pod without addresses came with. They
// are as good as requested ones: in the node's subnets, at most one in each.
func (b *books) claim(p *corev1.Pod, subnets []netip.Prefix) []netip.Addr {
	said, err := annotation.ParsePod(p.Annotations)
	if err != nil || b.pods.Held(owner(p)) != nil || len(onePerSubnet(said.Addresses, subnets)) != len(said.Addresses) {
		return nil
	}
	var out []netip.Addr
	for _, a := range said.Addresses {
		out = append(out, a.Addr())
	}
	return out
}

// onePerSubnet returns the addresses that are in the subnets and have their prefix length,
// of each subnet the first.
func onePerSubnet(addresses, subnets []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range subnets {
		if i := slices.IndexFunc(addresses, func(a netip.Prefix) bool { return a.Masked() == s.Masked() }); i >= 0 {
			out = append(out, addresses[i])
		}
	}
	return out
}

// planned reports whether the pod's port has what the books say. The annotation may have been
// changed after it was compared with them; that change brings the key again.
func (b *books) planned(rows []plan.Row) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range rows {
		port, ok := r.(plan.LogicalSwitchPort)
		if !ok || port.Incarnation == "" {
			continue
		}
		namespace, name, _ := strings.Cut(port.Name, "_")
		network := b.network(ipam.Pod{Name: namespace + "/" + name, UID: port.Incarnation})
		if len(network.Addresses) == 0 || !slices.Equal(port.Addresses, []string{plan.PortAddresses(network)}) {
			return false
		}
	}
	return true
}
