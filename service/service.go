package service

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
	"github.com/ovn-ebpf/ovn-ebpf/cluster/masquerade"
)

// ProxyNameLabel marks a Service that another proxy serves (kube-proxy's
// pkg/proxy/apis.LabelServiceProxyName).
const ProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// Config holds the cluster's settings for Services.
type Config struct {
	// Pods, Services and Join are the networks of pods, of cluster IPs and between OVN's routers.
	// Without Pods, pods have addresses of both families.
	Pods, Services, Join []netip.Prefix
	// ExternalIPs are the allowed ranges of external IPs. Without ranges, no external IP is
	// served.
	ExternalIPs []netip.Prefix
	// ControlPlane are the servers at whose ports no frontend is served.
	ControlPlane ControlPlane
	// TrustEndpointSlices says that only the control plane can write EndpointSlices with its
	// label.
	TrustEndpointSlices bool
}

// Service is the meaning of a Service that is served here. Lists of addresses are sorted and
// without duplicates.
type Service struct {
	Owner
	ClusterIPs []netip.Addr // at least one; in order of the Service
	External   []netip.Addr // external IPs and load balancer addresses
	// Announced are the addresses of External to which the source ranges apply: load balancer
	// addresses that are not also external IPs. External IPs are open to all clients.
	Announced []netip.Addr
	Ports     []Port // within the bounds
	// ExternalLocal and InternalLocal are the traffic policies.
	ExternalLocal, InternalLocal bool
	Affinity                     time.Duration // time for which a client keeps its endpoint; 0: no affinity
	HealthCheckPort              uint16        // node port of the health check; 0: none
	// Refused are the parts of the Service that are not served, or not to all clients, with the
	// reason.
	Refused []error

	cfg         Config
	externalIPs []netip.Addr // sorted; those that are served

	sourceRanges   []string                     // as in the Service
	endpointSlices []*discoveryv1.EndpointSlice // by name
	targetPorts    targets                      // of endpointSlices; nil until Endpoints is called

	hasSelector, isAPIServer bool // see authorOf
}

// Port is a port of a Service.
type Port struct {
	Name     string
	Protocol corev1.Protocol // TCP, UDP or SCTP
	Number   uint16
	NodePort uint16 // 0: none
}

// New returns the meaning of the Service, or nil if it is not served here. eps are its endpoint
// slices in any order. Callers that need only the frontends may pass nil.
func New(cfg Config, svc *corev1.Service, eps []*discoveryv1.EndpointSlice) *Service {
	if svc == nil || !isProxied(svc) {
		return nil
	}

	clusterIPs := parseClusterIPs(svc)
	if len(clusterIPs) == 0 {
		return nil // headless
	}

	s := &Service{
		Owner:           OwnerOfService(svc),
		ExternalLocal:   isExternalLocal(svc),
		InternalLocal:   isInternalLocal(svc),
		Affinity:        affinity(svc),
		HealthCheckPort: healthCheckPort(svc),
		cfg:             cfg,
		sourceRanges:    svc.Spec.LoadBalancerSourceRanges,
		endpointSlices:  byName(eps),
		hasSelector:     len(svc.Spec.Selector) > 0,
		isAPIServer:     IsAPIServerService(svc.Namespace, svc.Name),
	}
	for _, a := range clusterIPs {
		if !cfg.hasFamily(a.Is4()) {
			s.refuse("cluster IP %s: the cluster has no %s", a, FamilyName(a.Is4()))
			continue
		}

		if len(cfg.Services) > 0 && !cluster.Contains(cfg.Services, a) {
			// The address is served, because pods and host sockets reach it. But packets that
			// nodes forward do not, and the gateway does not protect it. An endpoint or an
			// external IP may have it, because they are checked against the networks alone.
			s.refuse("cluster IP %s: outside the service networks %s (--k8s-service-cidrs)",
				a, prefixList(cfg.Services))
		}

		s.ClusterIPs = append(s.ClusterIPs, a)
	}

	s.addExternal(svc, clusterIPs)
	s.addPorts(svc)

	return s
}

// refuse records a part of the Service that is not served, or not to all clients.
func (s *Service) refuse(format string, args ...any) {
	s.Refused = append(s.Refused, fmt.Errorf(format, args...))
}

// isProxied reports whether this proxy serves the Service. It does not serve an ExternalName, a
// Service of another proxy, or one with the label for headless Services. As in kube-proxy, that
// label counts regardless of a cluster IP.
func isProxied(svc *corev1.Service) bool {
	_, hasOtherProxy := svc.Labels[ProxyNameLabel]
	_, headless := svc.Labels[corev1.IsHeadlessService]

	return !hasOtherProxy && !headless && svc.Spec.Type != corev1.ServiceTypeExternalName
}

// HasFamily reports whether the Service has a cluster IP of the family.
func (s *Service) HasFamily(is4 bool) bool { return len(OfFamily(s.ClusterIPs, is4)) > 0 }

// SourceRanges returns the ranges of one family from which clients may connect to Announced;
// empty: all clients may. See sourceRanges.
func (s *Service) SourceRanges(is4 bool) []netip.Prefix { return sourceRanges(s.sourceRanges, is4) }

// TooManySourceRanges reports whether there are more than MaxSourceRanges. Then no client may
// connect.
func (s *Service) TooManySourceRanges() bool { return len(s.sourceRanges) > MaxSourceRanges }

// parseClusterIPs returns the Service's cluster IPs; none if it is headless.
func parseClusterIPs(svc *corev1.Service) []netip.Addr {
	if len(svc.Spec.ClusterIPs) == 0 {
		return parseAddrs(svc.Spec.ClusterIP)
	}

	return parseAddrs(svc.Spec.ClusterIPs...)
}

// addExternal sets External and Announced.
func (s *Service) addExternal(svc *corev1.Service, clusterIPs []netip.Addr) {
	// parse returns the addresses that can be served, and refuses the others.
	parse := func(what string, texts []string, check func(netip.Addr) error) (out []netip.Addr) {
		for _, text := range texts {
			a, err := s.cfg.parseExternalIP(text, clusterIPs)
			if err == nil {
				err = check(a)
			}

			if err != nil {
				s.refuse("%s %s: %w", what, text, err)
				continue
			}

			out = append(out, a)
		}

		return out
	}

	anyAddress := func(netip.Addr) error { return nil }

	s.externalIPs = sorted(parse("external IP", externalIPs(svc), s.cfg.checkExternalIP))
	announced := sorted(parse("load balancer address", ingressIPs(svc), anyAddress))
	s.External = sorted(slices.Concat(s.externalIPs, announced))
	s.Announced = slices.DeleteFunc(announced, s.HasExternalIP)

	if n := len(svc.Spec.ExternalIPs); n > MaxExternalIPs {
		s.refuse("the last %d external IPs: a service has at most %d", n-MaxExternalIPs, MaxExternalIPs)
	}

	if n := len(svc.Status.LoadBalancer.Ingress); n > MaxExternalIPs {
		s.refuse("the last %d load balancer addresses: a service has at most %d",
			n-MaxExternalIPs, MaxExternalIPs)
	}
}

// HasExternalIP reports whether the address is one of the Service's external IPs that are served.
func (s *Service) HasExternalIP(a netip.Addr) bool { return slices.Contains(s.externalIPs, a) }

// checkExternalIP returns an error for an address outside of the configured ranges. Kubernetes
// accepts any external IP, so the author of a Service could intercept the cluster's traffic to
// that address (CVE-2020-8554). The addresses of a load balancer need no permission, because only
// the control plane writes them.
func (c Config) checkExternalIP(a netip.Addr) error {
	switch {
	case len(c.ExternalIPs) == 0:
		return errors.New("not in the ranges of --allow-external-ips (none are set)")
	case !cluster.Contains(c.ExternalIPs, a):
		return errors.New("not in the ranges of --allow-external-ips")
	}

	return nil
}

// parseExternalIP parses an address outside of the cluster. It refuses addresses inside of it,
// because the author of a Service must not intercept traffic to other Services, pods or gateways.
func (c Config) parseExternalIP(text string, clusterIPs []netip.Addr) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if a = a.Unmap(); err != nil || a.Zone() != "" {
		return netip.Addr{}, errors.New("not an address")
	}

	if !c.hasFamily(a.Is4()) {
		return netip.Addr{}, fmt.Errorf("the cluster has no %s", FamilyName(a.Is4()))
	}

	if len(OfFamily(clusterIPs, a.Is4())) == 0 {
		return netip.Addr{}, fmt.Errorf("the service has no %s cluster IP", FamilyName(a.Is4()))
	}

	if !a.IsGlobalUnicast() {
		return netip.Addr{}, errors.New("not a global unicast address")
	}

	for _, inside := range []struct {
		what     string
		prefixes []netip.Prefix
	}{
		{"service network", c.Services},
		{"pod network", c.Pods},
		{"join network", c.Join},
		{"masquerade network", []netip.Prefix{masquerade.Of(a.Is4()).Subnet}},
	} {
		if cluster.Contains(inside.prefixes, a) {
			return netip.Addr{}, fmt.Errorf("inside the %s", inside.what)
		}
	}

	return a, nil
}

// ServesNodePorts reports whether node ports and host ports can be served at an address of a node.
// A node may also have addresses in the cluster's own networks, where they cannot.
func (c Config) ServesNodePorts(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !cluster.Contains(c.Services, a) && !cluster.Contains(c.Pods, a) &&
		!masquerade.Of(a.Is4()).Subnet.Contains(a)
}

// hasFamily reports whether pods have addresses of the family according to the settings.
func (c Config) hasFamily(is4 bool) bool {
	return len(c.Pods) == 0 ||
		slices.ContainsFunc(c.Pods, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 })
}

// addPorts sets Ports.
func (s *Service) addPorts(svc *corev1.Service) {
	served := servicePorts(svc, s.endpointSlices)
	for _, p := range served {
		if port, ok := newPort(p); ok {
			s.Ports = append(s.Ports, port)
		}
	}

	if all := len(svc.Spec.Ports); all > len(served) {
		s.refuse("the last %d ports: a service has at most %d ports; "+
			"its ports times its addresses are at most %d, and its ports times its endpoints at most %d",
			all-len(served), MaxServicePorts, MaxServiceFronts, MaxBackends)
	}
}

// newPort returns a port of a Service, or false for a port that the API server refuses.
func newPort(p corev1.ServicePort) (Port, bool) {
	out := Port{
		Name:     p.Name,
		Protocol: Protocol(p.Protocol),
		Number:   portNumber(p.Port),
		NodePort: portNumber(p.NodePort),
	}

	return out, isKnownProtocol(out.Protocol) && out.Number != 0
}

// portNumber returns a port's number, or 0 if it is not 1 to 65535.
func portNumber(port int32) uint16 {
	if port < 1 || port > 65535 {
		return 0
	}

	return uint16(port)
}

// Asked returns the external addresses and the ports that a Service asks for. It checks neither,
// because it is for indices, which must not depend on settings.
func Asked(svc *corev1.Service) (external []netip.Addr, ports []Port) {
	for _, p := range servicePorts(svc, nil) {
		if port, ok := newPort(p); ok {
			ports = append(ports, port)
		}
	}

	return parseAddrs(slices.Concat(externalIPs(svc), ingressIPs(svc))...), ports
}

// DependsOnNodes reports whether the meaning of the Service depends on the cluster's nodes: it may
// be served at their addresses, it treats nodes differently, or it has endpoints of hosts.
func (c Config) DependsOnNodes(svc *corev1.Service, eps []*discoveryv1.EndpointSlice) bool {
	hasNodePort := slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
	hasExternal := len(svc.Spec.ExternalIPs)+len(svc.Status.LoadBalancer.Ingress) > 0

	return hasNodePort || hasExternal || isExternalLocal(svc) || isInternalLocal(svc) ||
		slices.ContainsFunc(eps, c.nodesMatter)
}

func isExternalLocal(svc *corev1.Service) bool {
	return svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func isInternalLocal(svc *corev1.Service) bool {
	policy := svc.Spec.InternalTrafficPolicy
	return policy != nil && *policy == corev1.ServiceInternalTrafficPolicyLocal
}

// nodesMatter reports whether the slice has hints, or may have endpoints of hosts: at a port of
// KeptPorts, or outside of the pod networks.
func (c Config) nodesMatter(slice *discoveryv1.EndpointSlice) bool {
	for i := range slice.Ports {
		if name, number, _ := targetPort(&slice.Ports[i]); IsKept(name.proto, number) {
			return true
		}
	}

	for i := range slice.Endpoints {
		if slice.Endpoints[i].Hints != nil {
			return true
		}

		for _, a := range parseAddrs(slice.Endpoints[i].Addresses...) {
			if !cluster.Contains(c.Pods, a) {
				return true
			}
		}
	}

	return false
}

// affinity returns for how long a client keeps its endpoint, or 0 without session affinity.
func affinity(svc *corev1.Service) time.Duration {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}

	seconds := corev1.DefaultClientIPServiceAffinitySeconds

	config := svc.Spec.SessionAffinityConfig
	if config != nil && config.ClientIP != nil && config.ClientIP.TimeoutSeconds != nil {
		seconds = *config.ClientIP.TimeoutSeconds
	}

	return time.Duration(seconds) * time.Second
}

// healthCheckPort returns the node port of the load balancer's health check, or 0.
func healthCheckPort(svc *corev1.Service) uint16 {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || !isExternalLocal(svc) {
		return 0
	}

	return portNumber(svc.Spec.HealthCheckNodePort)
}
