package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/controller/annotation"
)

// hairpinAddresses are what OVN translates a pod to that reaches itself by a
// service; ovn-kubernetes's, so that policies written for them hold.
const hairpinAddresses = "169.254.169.5 fd69::5"

// proxyNameLabel marks what somebody else serves (kube-proxy's
// pkg/proxy/apis.LabelServiceProxyName).
const proxyNameLabel = "service.kubernetes.io/service-proxy-name"

// service is what of a Service its load balancers are made from.
type service struct {
	obj                          *corev1.Service
	clusterIPs, externalIPs      []netip.Addr
	slices                       []*discoveryv1.EndpointSlice
	nodes                        *servers // none: no node is different from another
	networks                     annotation.Networks
	targets                      annotation.Targets
	externalLocal, internalLocal bool
	claims                       *claims
	shortfall                    shortfall
	text                         int          // bytes that its load balancers may still have
	served                       []servedPort // as place has found
}

// servedPort is a port and the external addresses at which it is the service's.
type servedPort struct {
	proto  corev1.Protocol
	number int
	at     []netip.Addr
}

// serviceRows are, for each protocol, one load balancer for all nodes' switches
// and gateway routers; and where a node must answer otherwise than the others,
// or a router otherwise than a switch, load balancers for those. There are as
// many as answers that differ, which are by nodes with endpoints of the service, or
// by zones.
func serviceRows(c *Cluster, key Key) ([]Row, error) {
	svc := c.Service(key.Namespace, key.Name)
	if !served(svc) {
		return nil, nil
	}
	s := newService(c, svc)
	var rows []Row
	for proto, placed := range s.place() {
		for at, here := range placed {
			row := loadBalancer(svc, proto, at.suffix(), here.vips)
			row.Groups, row.Switches, row.Routers = here.parents(at)
			if at.keepClient {
				row.Options["skip_snat"] = "true"
			}
			if len(row.Groups)+len(row.Switches)+len(row.Routers) > 0 {
				rows = append(rows, row)
			}
		}
	}
	rows = append(rows, s.sourceRows()...)
	return rows, unserved(s.shortfall...)
}

// served says whether the service has addresses that are ours to serve: it is
// there, not headless, not but a name, and no other proxy's.
func served(svc *corev1.Service) bool {
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	_, other := svc.Labels[proxyNameLabel]
	_, headless := svc.Labels[corev1.IsHeadlessService] // kube-proxy's too: whatever cluster IP it has
	return !other && !headless && len(clusterAddresses(svc)) > 0
}

func clusterAddresses(svc *corev1.Service) []netip.Addr {
	return parseAddrs(svc.Spec.ClusterIPs, svc.Spec.ClusterIP)
}

func newService(c *Cluster, svc *corev1.Service) *service {
	s := &service{
		obj: svc, slices: c.slices(svc), nodes: &servers{}, text: maxServiceText,
		networks:      annotation.Networks{Services: c.Config.ServiceCIDRs, Join: c.Config.JoinSubnets},
		externalLocal: svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		internalLocal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
	}
	s.targets = annotation.NewTargets(s.slices)
	for _, a := range clusterAddresses(svc) {
		if !c.Config.has(a.Is4()) {
			s.shortfall.add("cluster IP %s: the cluster has no %s", a, familyName(a.Is4()))
			continue
		}
		s.clusterIPs = append(s.clusterIPs, a)
	}
	s.externalIPs = c.Config.externalAddresses(svc, &s.shortfall)
	s.checkBounds()
	if NeedsNodes(c, svc) {
		s.nodes = c.servers()
	}
	s.claims = newClaims(c, claimant{key: ServiceKey(svc.Namespace, svc.Name), created: svc.CreationTimestamp.Time}, s.nodes, &s.shortfall)
	return s
}

// checkBounds adds what exceeds the bounds of a service.
func (s *service) checkBounds() {
	if n := len(s.obj.Spec.ExternalIPs); n > annotation.MaxExternalIPs {
		s.shortfall.add("the last %d external IPs: a service has at most %d", n-annotation.MaxExternalIPs, annotation.MaxExternalIPs)
	}
	if n := len(s.obj.Status.LoadBalancer.Ingress); n > annotation.MaxExternalIPs {
		s.shortfall.add("the last %d load balancer addresses: a service has at most %d", n-annotation.MaxExternalIPs, annotation.MaxExternalIPs)
	}
	if all, some := len(s.obj.Spec.Ports), len(s.ports()); all > some {
		s.shortfall.add("the last %d ports: a service has at most %d, %d times its addresses and %d times its endpoints",
			all-some, annotation.MaxServicePorts, annotation.MaxServiceFronts, annotation.MaxBackends)
	}
}

// ports are those within the bounds.
func (s *service) ports() []corev1.ServicePort { return annotation.ServicePorts(s.obj, s.slices) }

func loadBalancer(svc *corev1.Service, proto corev1.Protocol, suffix string, vips map[string]string) LoadBalancer {
	options := loadBalancerOptions(proto)
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		options["affinity_timeout"] = strconv.Itoa(affinityTimeout(svc))
	}
	name := svc.Namespace + "/" + svc.Name
	return LoadBalancer{
		Name:     "Service_" + name + "_" + string(proto) + "_" + suffix,
		Protocol: strings.ToLower(string(proto)), VIPs: vips, Options: options,
		ExternalIDs: map[string]string{"k8s.ovn.org/kind": "Service", "k8s.ovn.org/owner": name},
	}
}

func loadBalancerOptions(proto corev1.Protocol) map[string]string {
	options := map[string]string{
		"event":              "false",
		"reject":             "true",
		"skip_snat":          "false",
		"neighbor_responder": "none",
		"hairpin_snat_ip":    hairpinAddresses,
	}
	if proto == corev1.ProtocolUDP {
		// A client that goes on sending from one port would stay with an endpoint
		// that is gone. TCP connections to one that ends are to end by themselves.
		options["ct_flush"] = "true"
	}
	return options
}

func affinityTimeout(svc *corev1.Service) int {
	const longest = 65535 // OVN's; Kubernetes allows a day
	seconds := int(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = int(*c.ClientIP.TimeoutSeconds)
	}
	return min(seconds, longest)
}

// NeedsNodes says whether the service's rows depend on nodes: it is served on
// nodes' addresses or might be, treats nodes differently, or has endpoints on the
// network of hosts.
func NeedsNodes(c *Cluster, svc *corev1.Service) bool {
	return HasNodePorts(svc) || svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal ||
		svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal ||
		len(svc.Spec.ExternalIPs)+len(svc.Status.LoadBalancer.Ingress) > 0 ||
		slices.ContainsFunc(c.slices(svc), c.Config.nodesMatter)
}

// nodesMatter says whether the slice has endpoints of hosts, maybe by their management
// ports, or for some nodes only.
func (cfg Config) nodesMatter(slice *discoveryv1.EndpointSlice) bool {
	for _, p := range slice.Ports {
		if p.Port != nil && *p.Port > 0 && *p.Port <= 65535 && annotation.IsKept(corev1.ProtocolTCP, uint16(*p.Port)) {
			return true
		}
	}
	for i := range slice.Endpoints {
		if slice.Endpoints[i].Hints != nil {
			return true
		}
		for _, a := range parseAddrs(slice.Endpoints[i].Addresses, "") {
			if !contains(cfg.ClusterCIDRs, a) {
				return true
			}
		}
	}
	return false
}

// HasNodePorts says whether the service is served on nodes' addresses.
func HasNodePorts(svc *corev1.Service) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}

func parseAddrs(list []string, single string) []netip.Addr {
	if len(list) == 0 {
		list = []string{single}
	}
	var out []netip.Addr
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a.Unmap()) // as node agents do
		}
	}
	return out
}

func ofFamily(addrs []netip.Addr, is4 bool) []netip.Addr {
	var out []netip.Addr
	for _, a := range addrs {
		if a.Is4() == is4 {
			out = append(out, a)
		}
	}
	return out
}
