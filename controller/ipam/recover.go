package ipam

import (
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// Port is a pod's logical switch port, as a new leader finds it in OVN.
type Port struct {
	Pod       Pod
	MAC       net.HardwareAddr // nil if there is none, or no valid one
	Addresses []netip.Addr
}

// Recover restores the allocations of the former leader's Allocator, before this one allocates.
// nodes and pods are all that exist. A pod's addresses in OVN take precedence over annotations,
// which the creator of a pod can write: they must not take another pod's addresses. If two objects
// claim the same value, the older one keeps it. Recover sorts the lists.
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

// recoverPods allocates the addresses that the pods have in OVN, and then the annotated ones of
// pods that are not in OVN, or not in all subnets. A port stays in a.ports if the pod's node has no
// subnets yet: holdNode calls recoverPods again when it gets them.
func (a *Allocator) recoverPods(pods []*corev1.Pod) {
	for _, p := range pods {
		if port, known := a.ports[PodOf(p)]; known {
			a.recoverPod(p, withPrefixLengths(port.Addresses, a.nodes.Held(p.Spec.NodeName)), port.MAC)
		}
	}

	for _, p := range pods {
		annotated, err := annotation.ParsePod(p.Annotations)
		if err != nil || !areInside(annotated.Addresses, a.nodes.Held(p.Spec.NodeName)) {
			continue
		}

		// Trust an annotated MAC address only if the pod also requests it.
		var mac net.HardwareAddr
		if r, err := annotation.ParseRequest(p.Annotations); err == nil && slices.Equal(r.MAC, annotated.MAC) {
			mac = r.MAC
		}

		a.recoverPod(p, annotated.Addresses, mac)
	}
}

// recoverPod allocates the addresses to the pod, those in the subnets of its node in which it has
// none yet. It also allocates the MAC address, unless the pod has one.
func (a *Allocator) recoverPod(p *corev1.Pod, addresses []netip.Prefix, mac net.HardwareAddr) {
	pod := PodOf(p)
	previous := a.network(pod)
	subnets := a.nodes.Held(p.Spec.NodeName)

	addresses = onePerSubnet(slices.Concat(previous.Addresses, addresses), subnets)
	if !plan.NeedsPort(p) || len(addresses) == 0 || slices.Equal(addresses, previous.Addresses) {
		return
	}

	if err := a.pods.Hold(pod, addresses); err != nil {
		a.settings.Log.Warn("allocation found twice", "error", err)
		return
	}

	delete(a.ports, pod)

	if err := a.holdMAC(pod, p.Spec.NodeName, subnets, previous.MAC, mac); err != nil {
		a.settings.Log.Warn("no MAC address for a pod", "error", err)
	}
}

// withPrefixLengths returns the addresses that are in the subnets, with the subnets' prefix
// lengths.
func withPrefixLengths(addresses []netip.Addr, subnets []netip.Prefix) []netip.Prefix {
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
