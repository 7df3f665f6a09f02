package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// hairpinAddresses are what OVN translates a pod to that reaches itself by a
// service; ovn-kubernetes's, so that policies written for them hold.
const hairpinAddresses = "169.254.169.5 fd69::5"

// serviceRows are one load balancer a protocol, with a VIP for every cluster
// IP and, for node ports, every address of every node.
func serviceRows(c *Cluster, key Key) []Row {
	svc := c.Service(key.Namespace, key.Name)
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	clusterIPs := parseAddrs(svc.Spec.ClusterIPs, svc.Spec.ClusterIP)
	if len(clusterIPs) == 0 {
		return nil // headless
	}
	var nodeAddrs []netip.Addr
	if HasNodePorts(svc) {
		nodeAddrs = c.nodePortAddresses()
	}
	endpoints := c.slices(svc)
	vips := map[corev1.Protocol]map[string]string{}
	for _, port := range svc.Spec.Ports {
		byVIP := vips[protocol(port.Protocol)]
		if byVIP == nil {
			byVIP = map[string]string{}
			vips[protocol(port.Protocol)] = byVIP
		}
		for _, is4 := range []bool{true, false} {
			backends := backends(endpoints, port, is4)
			addVIPs(byVIP, ofFamily(clusterIPs, is4), port.Port, backends)
			if port.NodePort != 0 && len(ofFamily(clusterIPs, is4)) > 0 {
				addVIPs(byVIP, ofFamily(nodeAddrs, is4), port.NodePort, backends)
			}
		}
	}
	var rows []Row
	for proto, byVIP := range vips {
		rows = append(rows, loadBalancer(svc, proto, byVIP))
	}
	return rows
}

func loadBalancer(svc *corev1.Service, proto corev1.Protocol, vips map[string]string) LoadBalancer {
	options := map[string]string{
		"event":              "false",
		"reject":             "true",
		"skip_snat":          "false",
		"neighbor_responder": "none",
		"hairpin_snat_ip":    hairpinAddresses,
	}
	if svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		options["affinity_timeout"] = strconv.Itoa(affinityTimeout(svc))
	}
	name := svc.Namespace + "/" + svc.Name
	return LoadBalancer{
		Groups: []string{clusterLBGroup}, Name: "Service_" + name + "_" + string(proto) + "_cluster",
		Protocol: strings.ToLower(string(proto)), VIPs: vips, Options: options,
		ExternalIDs: map[string]string{"k8s.ovn.org/kind": "Service", "k8s.ovn.org/owner": name},
	}
}

func affinityTimeout(svc *corev1.Service) int {
	const longest = 65535 // OVN's; Kubernetes allows a day
	seconds := int(corev1.DefaultClientIPServiceAffinitySeconds)
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = int(*c.ClientIP.TimeoutSeconds)
	}
	return min(seconds, longest)
}

// backends are the ready endpoints of one service port and family, as OVN
// writes them: sorted, separated by commas, "" if there are none.
func backends(endpointSlices []*discoveryv1.EndpointSlice, port corev1.ServicePort, is4 bool) string {
	seen := map[netip.AddrPort]struct{}{}
	for _, slice := range endpointSlices {
		number, ok := targetPort(slice, port)
		if !ok {
			continue
		}
		for _, ep := range slice.Endpoints {
			if ep.Conditions.Ready != nil && !*ep.Conditions.Ready {
				continue
			}
			for _, a := range ofFamily(parseAddrs(ep.Addresses, ""), is4) {
				seen[netip.AddrPortFrom(a, number)] = struct{}{}
			}
		}
	}
	var out []string
	for _, ap := range slices.SortedFunc(maps.Keys(seen), netip.AddrPort.Compare) {
		out = append(out, ap.String())
	}
	return strings.Join(out, ",")
}

// targetPort is the port that the slice's endpoints have for a service port:
// the API server's controller has resolved names, per slice.
func targetPort(slice *discoveryv1.EndpointSlice, port corev1.ServicePort) (uint16, bool) {
	for _, p := range slice.Ports {
		name, proto := "", corev1.ProtocolTCP
		if p.Name != nil {
			name = *p.Name
		}
		if p.Protocol != nil {
			proto = *p.Protocol
		}
		if name == port.Name && proto == protocol(port.Protocol) && p.Port != nil {
			return uint16(*p.Port), true
		}
	}
	return 0, false
}

func addVIPs(to map[string]string, addrs []netip.Addr, port int32, backends string) {
	for _, a := range addrs {
		to[netip.AddrPortFrom(a, uint16(port)).String()] = backends
	}
}

// HasNodePorts says whether the service is served on nodes' addresses.
func HasNodePorts(svc *corev1.Service) bool {
	return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort != 0 })
}

// nodePortAddresses are the addresses on which node ports are served: those of
// every node whose gateway serves them. A node whose annotations are malformed
// is left out; that is reported where the node is planned.
func (c *Cluster) nodePortAddresses() []netip.Addr {
	var out []netip.Addr
	for _, obj := range c.Nodes.List() {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		n, err := parseNode(node, c.Config)
		if err == nil && n.hasGateway() && n.gateway.NodePorts {
			out = append(out, n.addresses(c.Config)...)
		}
	}
	return out
}

func protocol(p corev1.Protocol) corev1.Protocol {
	if p == "" {
		return corev1.ProtocolTCP
	}
	return p
}

func parseAddrs(list []string, single string) []netip.Addr {
	if len(list) == 0 {
		list = []string{single}
	}
	var out []netip.Addr
	for _, s := range list {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a)
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
