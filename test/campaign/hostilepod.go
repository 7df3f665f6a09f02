package campaign

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// pod creates the pod with this name, replaces it, or deletes it.
func (g *generator) pod(name string) call {
	no := false

	p := &corev1.Pod{ObjectMeta: g.meta(name), Spec: corev1.PodSpec{
		NodeName: pick(g, "node1", "node2", "node3", ""), HostNetwork: g.r.IntN(8) == 0, AutomountServiceAccountToken: &no,
	}}
	for i := range pick(g, 1, 1, 2) {
		p.Spec.Containers = append(p.Spec.Containers, g.container(fmt.Sprint("c", i), p.Spec.HostNetwork))
	}

	for i := range pick(g, 0, 0, 1, 2) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, g.container(fmt.Sprint("i", i), p.Spec.HostNetwork))
	}

	return g.fresh(p)
}

// container returns a container with ports. The API server requires that the ports of a pod in the
// host's network are the host's.
func (g *generator) container(name string, hostNetwork bool) corev1.Container {
	c := corev1.Container{Name: name, Image: "none"}
	if g.r.IntN(3) == 0 {
		c.RestartPolicy = ptr(g, corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever)
	}

	for i := range pick(g, 1, 1, 2, 20) {
		port := g.port()

		p := corev1.ContainerPort{
			Name: pick(g, fmt.Sprint("p", i), "", "http"), ContainerPort: port, Protocol: g.protocol(),
			HostPort: pick(g, 0, port, g.port()), HostIP: pick(g, "", "0.0.0.0", "::", pick(g, g.values.hosts...).String(), g.address().String()),
		}
		if hostNetwork {
			p.HostPort = port
		}

		c.Ports = append(c.Ports, p)
	}

	return c
}

// podStatus reports a pod's status, as kubelet does: its own addresses, or those of its node. A
// tenant cannot write it, but lets its pods end.
func (g *generator) podStatus(name string) call {
	phase := pick(g, corev1.PodRunning, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed)
	return call{verb: report, object: named[corev1.Pod](name), status: func(now metav1.Object) { kubeletReports(now.(*corev1.Pod), phase, g.values.hosts) }}
}

// kubeletReports sets the status of a pod. nodes are addresses, two for each node.
func kubeletReports(p *corev1.Pod, phase corev1.PodPhase, nodes []netip.Addr) {
	p.Status.Phase, p.Status.PodIPs, p.Status.PodIP = phase, nil, ""

	var addresses []netip.Addr

	if a, err := annotation.ParsePod(p.Annotations); err == nil && !p.Spec.HostNetwork {
		for _, prefix := range a.Addresses {
			addresses = append(addresses, prefix.Addr())
		}
	}

	if i := slices.Index([]string{"node1", "node2"}, p.Spec.NodeName); i >= 0 && p.Spec.HostNetwork && len(nodes) >= 4 {
		addresses = nodes[2*i : 2*i+2]
	}

	for i, a := range addresses {
		if i < 2 && (i == 0 || a.Is4() != addresses[0].Is4()) {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
	}

	if len(p.Status.PodIPs) > 0 {
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
}

// annotations returns annotations that some component reads, with untrustworthy values.
func (g *generator) annotations() map[string]string {
	out := map[string]string{}

	for range 1 + g.r.IntN(3) {
		key, value := g.annotation()
		out[key] = value
	}

	return out
}

func (g *generator) annotation() (key, value string) {
	key = pick(g, annotation.PodNetworks, annotation.PodNetworks, annotation.FirstPod, annotation.DefaultNetwork, annotation.DefaultNetwork,
		"kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth", "k8s.v1.cni.cncf.io/networks", annotation.LeavesBy, annotation.HostCIDRs, "k8s.ovn.org/acl-logging")
	if g.r.IntN(4) == 0 {
		return key, g.junk()
	}

	mac, err := net.ParseMAC(pick(g, g.values.macs...))
	if err != nil {
		return key, g.junk()
	}

	p := annotation.Pod{MAC: mac}
	if g.r.IntN(2) == 0 {
		p.Addresses, p.Gateways = g.neighbours()
	} else {
		for range pick(g, 1, 1, 2, 2, 3, 250) {
			a := g.address()
			p.Addresses = append(p.Addresses, netip.PrefixFrom(a, pick(g, a.BitLen(), 24, 0)))
			p.Gateways = append(p.Gateways, g.address())
		}
	}

	switch key {
	case annotation.PodNetworks:
		return key, annotation.FormatPod(p)
	case annotation.FirstPod:
		return key, annotation.FormatFirstPod(p)
	case annotation.DefaultNetwork:
		r := annotation.Request{}
		for _, a := range p.Addresses[:min(len(p.Addresses), 2)] {
			r.Addresses = append(r.Addresses, a.Addr())
		}

		if g.r.IntN(2) == 0 {
			r.MAC = mac
		}

		return key, annotation.FormatRequest(r)
	}

	return key, pick(g, "1", "-1", "1e30", "18446744073709551616", "1T", g.address().String(), g.junk())
}

// neighbours returns what an annotation of the controller's has: one address per family inside a
// node's subnets, with the routers as gateways. Half of the addresses belong to victims, to the
// router or to the management port.
func (g *generator) neighbours() (addresses []netip.Prefix, gateways []netip.Addr) {
	for _, s := range pick(g, g.values.subnets...) {
		a := plan.RouterAddress(s).Addr()
		gateways = append(gateways, a)
		used := slices.DeleteFunc(slices.Clone(g.values.used), func(u netip.Addr) bool { return !s.Contains(u) })

		used = append(used, a, plan.ManagementAddress(s).Addr())
		if a = pick(g, used...); g.r.IntN(2) == 0 {
			for a = s.Masked().Addr(); a.As16()[15] == 0; {
				b := a.As16()
				b[15] = byte(g.r.IntN(256))

				a = netip.AddrFrom16(b)
				if s.Addr().Is4() {
					a = a.Unmap()
				}
			}
		}

		addresses = append(addresses, netip.PrefixFrom(a, s.Bits()))
	}

	return addresses, gateways
}

// patchPod sets or removes annotations of a pod.
func (g *generator) patchPod(name string) call {
	annotations := map[string]any{}

	for range 1 + g.r.IntN(2) {
		key, value := g.annotation()

		annotations[key] = value
		if g.r.IntN(6) == 0 {
			annotations[key] = nil
		}
	}

	return call{verb: patch, object: named[corev1.Pod](name), patch: annotation.Patch(metav1.ObjectMeta{}, annotations)}
}
