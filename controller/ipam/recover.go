package ipam

import (
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// Port is a pod's logical switch port.
type Port struct {
	Pod       Pod
	MAC       net.HardwareAddr // nil if there is none, or no valid one
	Addresses []netip.Addr
}

// Recover restores the allocations of an earlier Allocator. OVN's values go first, because an
// annotation must not take another pod's addresses. Of two objects that claim the same value the
// older keeps it. Recover sorts the lists.
func (a *Allocator) Recover(nodes []*corev1.Node, pods []*corev1.Pod, ports []Port) {
	a.mu.Lock()
	defer a.mu.Unlock()

	slices.SortFunc(nodes, older)

	for _, n := range nodes {
		if err := a.holdNode(n, nil); err != nil {
			a.settings.Log.Warn("allocation found twice", "error", err)
		}
	}

	exists := map[Pod]bool{}
	for _, p := range pods {
		exists[PodOf(p)] = true
	}

	for _, p := range ports {
		if exists[p.Pod] {
			a.ports[p.Pod] = p
		}
	}

	slices.SortFunc(pods, older)
	a.recoverPods(pods)
}

// recoverPods holds what the pods have in OVN. In a subnet in which OVN has no address of a pod, and
// for a pod that OVN does not know, the annotation counts afterwards. Ports of pods whose node
// holds nothing yet stay in a.ports.
func (a *Allocator) recoverPods(pods []*corev1.Pod) {
	for _, p := range pods {
		if port, known := a.ports[PodOf(p)]; known {
			a.recoverPod(p, prefixed(port.Addresses, a.nodes.Held(p.Spec.NodeName)), port.MAC)
		}
	}

	for _, p := range pods {
		said, err := annotation.ParsePod(p.Annotations)
		if err != nil ||
			len(onePerSubnet(said.Addresses, a.nodes.Held(p.Spec.NodeName))) != len(said.Addresses) {
			continue
		}

		// Only a MAC address that is requested too is more than the annotation's word.
		var mac net.HardwareAddr
		if r, err := annotation.ParseRequest(p.Annotations); err == nil && slices.Equal(r.MAC, said.MAC) {
			mac = r.MAC
		}

		a.recoverPod(p, said.Addresses, mac)
	}
}

// recoverPod gives the pod those of the addresses that are in its node's subnets, where it has none
// yet, and the MAC address unless it has one.
func (a *Allocator) recoverPod(p *corev1.Pod, addresses []netip.Prefix, mac net.HardwareAddr) {
	pod, had, subnets := PodOf(p), a.network(PodOf(p)), a.nodes.Held(p.Spec.NodeName)

	addresses = onePerSubnet(slices.Concat(had.Addresses, addresses), subnets)
	if !plan.NeedsPort(p) || len(addresses) == 0 || slices.Equal(addresses, had.Addresses) {
		return
	}

	if err := a.pods.Hold(pod, addresses); err != nil {
		a.settings.Log.Warn("allocation found twice", "error", err)
		return
	}

	delete(a.ports, pod)

	if err := a.holdMAC(pod, p.Spec.NodeName, subnets, had.MAC, mac); err != nil {
		a.settings.Log.Warn("no MAC address for a pod", "error", err)
	}
}

// prefixed returns the addresses that are in the subnets, with their prefix lengths.
func prefixed(addresses []netip.Addr, subnets []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix

	for _, a := range addresses {
		for _, s := range subnets {
			if s.Contains(a) {
				out = append(out, netip.PrefixFrom(a, s.Bits()))
			}
		}
	}

	return out
}
