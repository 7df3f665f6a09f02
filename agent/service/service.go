package service

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// proxyNameLabel marks what somebody else serves (kube-proxy's
// pkg/proxy/apis.LabelServiceProxyName).
const proxyNameLabel = "service.kubernetes.io/service-proxy-name"

// Proxied says whether the Service is one that is served here: not but a name,
// no other proxy's, and none that a label calls headless, as kube-proxy has it,
// whatever cluster IP it has.
func Proxied(svc *corev1.Service) bool {
	_, other := svc.Labels[proxyNameLabel]
	_, headless := svc.Labels[corev1.IsHeadlessService]
	return !other && !headless && svc.Spec.Type != corev1.ServiceTypeExternalName
}

// planService plans every port of the Service in each of its families.
func planService(svc *corev1.Service, in []*discoveryv1.EndpointSlice, n *Node) *Plan {
	if !Proxied(svc) {
		return nil
	}
	p := &Plan{Created: svc.CreationTimestamp.Time}
	in = byName(in)
	targets := annotation.NewTargets(in)
	for _, is4 := range []bool{true, false} {
		a := addressesOf(svc, is4, n)
		if !a.served {
			continue // headless, or not of this family
		}
		p.VIPs = append(p.VIPs, a.vips...)
		for _, port := range annotation.ServicePorts(svc, in) {
			if proto := protocolNumber(port.Protocol); proto != 0 && port.Port > 0 && port.Port <= 65535 {
				first := len(p.FrontEnds)
				p.addPort(svc, a, servicePort{port, proto, endpoints(svc, in, targets, port, is4, n)}, n)
				for i := range p.FrontEnds[first:] {
					p.FrontEnds[first+i].Port = uint16(port.Port)
				}
			}
		}
	}
	return p
}

// addresses are those of one family at which a Service is reached.
type addresses struct {
	is4     bool
	served  bool
	cluster []netip.Addr
	open    []netip.Addr // external and load balancer addresses, for all
	ranged  []netip.Addr // load balancer addresses that not everybody may use
	ranges  []netip.Prefix
	admits  bool         // the node itself may use those
	vips    []netip.Addr // open and ranged
	nodes   []netip.Addr // with node ports
}

func addressesOf(svc *corev1.Service, is4 bool, n *Node) addresses {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	out := addresses{is4: is4, cluster: parse(is4, ips...)}
	out.served = len(out.cluster) > 0
	out.cluster = slices.DeleteFunc(out.cluster, n.owns)
	inside := func(a netip.Addr) bool { return !n.servable(a) }
	out.open = slices.DeleteFunc(parse(is4, annotation.ExternalIPs(svc)...), func(a netip.Addr) bool {
		return inside(a) || len(n.ExternalIPs) > 0 && !within(n.ExternalIPs, a)
	})
	balancer := slices.DeleteFunc(parse(is4, ingressIPs(svc)...), inside)
	if out.ranges = annotation.SourceRanges(svc.Spec.LoadBalancerSourceRanges, is4); len(out.ranges) == 0 {
		out.open = append(out.open, balancer...)
	} else {
		out.ranged = balancer
		out.admits = slices.ContainsFunc(out.ranges, func(p netip.Prefix) bool { return slices.ContainsFunc(n.Addresses, p.Contains) })
	}
	out.vips = append(slices.Clone(out.open), out.ranged...)
	out.nodes = n.outside(is4)
	return out
}

// ingressIPs are the load balancer's addresses, without those of one that
// talks to node ports or endpoints itself (ipMode Proxy).
func ingressIPs(svc *corev1.Service) []string {
	var out []string
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	for _, i := range annotation.Ingress(svc) {
		if i.IPMode == nil || *i.IPMode == corev1.LoadBalancerIPModeVIP {
			out = append(out, i.IP)
		}
	}
	return out
}

type servicePort struct {
	corev1.ServicePort
	proto     uint8
	endpoints []endpoint
}

// addPort plans one port of one family. Sockets of the node reach every
// endpoint of the cluster by external addresses and node ports, whatever
// externalTrafficPolicy says: what a node sends itself is internal traffic
// (kube-proxy's nftables proxier, "short-circuit local traffic").
func (p *Plan) addPort(svc *corev1.Service, a addresses, port servicePort, n *Node) {
	here := usable(port.endpoints, func(e endpoint) bool { return e.local(n) })
	external := Group{
		Proto: port.proto, Affinity: affinity(svc),
		Backends: addrs(usable(port.endpoints, near(port.endpoints, n))),
	}
	if n.Lookup && port.proto == protoTCP {
		external.Local = hostSocket(svc, here)
	}
	if n.Local {
		external.Redirect = redirect(svc, port, a.cluster, here)
	}
	internal := external
	if t := svc.Spec.InternalTrafficPolicy; t != nil && *t == corev1.ServiceInternalTrafficPolicyLocal {
		internal.Backends = addrs(here)
	}
	ranged := external // OVN asks who comes, and the host's nftables; a socket would not
	ranged.Local = netip.AddrPort{}
	if n.Local {
		ranged.From = a.ranges
	}
	if !a.admits {
		ranged.Backends = nil
	}

	front := frontEnds{proto: port.proto, host: external.Local.IsValid(), node: n}
	number := uint16(port.Port)
	p.add(internal, front.internal(number, a.cluster))
	p.add(external, front.external(number, a.open))
	through := front
	through.host = false
	p.add(ranged, through.external(number, a.ranged))
	if port.NodePort > 0 && port.NodePort <= 65535 && n.NodePorts {
		p.add(external, front.nodePort(uint16(port.NodePort), a.is4, a.nodes))
	}
	if port.proto == protoUDP {
		for _, e := range port.endpoints {
			if e.state > stateGone {
				p.UDP = append(p.UDP, e.addr)
			}
		}
	}
}

// redirect returns Group.Redirect.
func redirect(svc *corev1.Service, port servicePort, cluster []netip.Addr, here []endpoint) []netip.AddrPort {
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		return addrs(here)
	}
	if len(cluster) == 0 {
		return nil
	}
	return []netip.AddrPort{netip.AddrPortFrom(cluster[0], uint16(port.Port))}
}

// hostSocket returns the endpoint in this host's network that takes what
// arrives for a Service of externalTrafficPolicy Local; zero if there is none.
// It is for TCP: a connection keeps the port it was made to, while answers of a
// UDP socket would come from the endpoint's port.
func hostSocket(svc *corev1.Service, here []endpoint) netip.AddrPort {
	if svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		for _, e := range here {
			if e.hostNetwork {
				return e.addr
			}
		}
	}
	return netip.AddrPort{}
}

func affinity(svc *corev1.Service) time.Duration {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}
