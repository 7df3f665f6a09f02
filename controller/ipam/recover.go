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
			a.settings.Log.Warn("allocation found twice", "err", err)
		}
	}
	slices.SortFunc(pods, older)
	a.recoverPods(pods, ports)
}

func (a *Allocator) recoverPods(pods []*corev1.Pod, ports []Port) {
	for _, p := range ports {
		a.ports[p.Pod] = p
	}
	var unknown []*corev1.Pod
	later := map[Pod]Port{} // of pods whose node holds nothing yet
	for _, p := range pods {
		if _, known := a.ports[PodOf(p)]; !known {
			unknown = append(unknown, p)
			continue
		}
		a.recoverPod(p)
		if port, left := a.ports[PodOf(p)]; left {
			later[PodOf(p)] = port
		}
	}
	for _, p := range unknown {
		a.recoverPod(p)
	}
	a.ports = later
}

// recoverPod holds what the pod has in OVN. In a subnet in which OVN has no address of it, and
// for a pod that OVN does not know, the annotation counts. An address outside its node's subnets is ignored.
func (a *Allocator) recoverPod(p *corev1.Pod) {
	subnets := a.nodes.Held(p.Spec.NodeName)
	if !plan.NeedsPort(p) || len(subnets) == 0 {
		return
	}
	pod := PodOf(p)
	said, err := annotation.ParsePod(p.Annotations)
	if err != nil || len(onePerSubnet(said.Addresses, subnets)) != len(said.Addresses) {
		said = annotation.Pod{}
	}
	port := a.ports[pod]
	addresses := onePerSubnet(slices.Concat(prefixed(port.Addresses, subnets), said.Addresses), subnets)
	if len(addresses) == 0 {
		return
	}
	if err := a.pods.Hold(pod, addresses); err != nil {
		a.settings.Log.Warn("allocation found twice", "err", err)
		return
	}
	delete(a.ports, pod)
	// Only a MAC address that OVN has, or that is requested too, is more than the annotation's word.
	candidates := []net.HardwareAddr{port.MAC}
	if r, err := annotation.ParseRequest(p.Annotations); err == nil && r.MAC.String() == said.MAC.String() {
		candidates = append(candidates, r.MAC)
	}
	if err := a.holdMAC(pod, p.Spec.NodeName, subnets, candidates...); err != nil {
		a.settings.Log.Warn("no MAC address for a pod", "err", err)
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
