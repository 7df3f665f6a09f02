package reconcile

import (
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/ipam"
	"github.com/ovn-ebpf/ovn-ebpf/controller/nb"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// recoverNodes holds what nodes have had before this replica led.
func (b *books) recoverNodes(listed []metav1.Object) {
	for _, obj := range listed {
		if n, ok := obj.(*corev1.Node); ok {
			if err := b.holdNode(nil, n); err != nil {
				b.log.Warn("allocation found twice", "err", err)
			}
		}
	}
}

// recoverPods holds what pods have had before this replica led. Those that OVN knows come
// first: what an annotation says cannot take their addresses.
func (b *books) recoverPods(listed []metav1.Object, ports []nb.PodPort) {
	for _, p := range ports {
		b.ports[ipam.Pod{Name: p.Pod.Namespace + "/" + p.Pod.Name, UID: p.UID}] = p
	}
	var unknown []*corev1.Pod
	later := map[ipam.Pod]nb.PodPort{} // of pods whose node holds nothing yet
	for _, obj := range listed {
		p, ok := obj.(*corev1.Pod)
		if !ok {
			continue
		}
		if _, known := b.ports[owner(p)]; !known {
			unknown = append(unknown, p)
			continue
		}
		b.recoverPod(p)
		if port, left := b.ports[owner(p)]; left {
			later[owner(p)] = port
		}
	}
	for _, p := range unknown {
		b.recoverPod(p)
	}
	b.ports = later
}

// recoverPod holds what the pod has in OVN. In a subnet in which OVN has no address of it, and
// for a pod that OVN does not know, the annotation counts. What is not of its node is nobody's.
func (b *books) recoverPod(p *corev1.Pod) {
	subnets := b.nodes.Held(p.Spec.NodeName)
	if !plan.NeedsPort(p) || len(subnets) == 0 {
		return
	}
	pod := owner(p)
	said, err := annotation.ParsePod(p.Annotations)
	if err != nil || len(onePerSubnet(said.Addresses, subnets)) != len(said.Addresses) {
		said = annotation.Pod{}
	}
	port := b.ports[pod]
	addresses := onePerSubnet(slices.Concat(in(port.Addresses, subnets), said.Addresses), subnets)
	if len(addresses) == 0 {
		return
	}
	if err := b.pods.Hold(pod, addresses); err != nil {
		b.log.Warn("allocation found twice", "err", err)
		return
	}
	delete(b.ports, pod)
	// Only a MAC address that OVN has, or that is requested too, is more than the annotation's word.
	candidates := []net.HardwareAddr{port.MAC}
	if r, err := annotation.ParseRequest(p.Annotations); err == nil && r.MAC.String() == said.MAC.String() {
		candidates = append(candidates, r.MAC)
	}
	if err := b.holdMAC(pod, p.Spec.NodeName, subnets, candidates...); err != nil {
		b.log.Warn("no MAC address for a pod", "err", err)
	}
}

// in returns the addresses that are in the subnets, with their prefix lengths.
func in(addresses []netip.Addr, subnets []netip.Prefix) []netip.Prefix {
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

func owner(p *corev1.Pod) ipam.Pod {
	return ipam.Pod{Name: p.Namespace + "/" + p.Name, UID: string(p.UID)}
}
