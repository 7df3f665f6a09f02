package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// hairpinAddresses are what OVN translates a pod to that reaches itself by a
// service; ovn-kubernetes's, so that policies written for them hold.
const hairpinAddresses = "169.254.169.5 fd69::5"

// service renders what a Service means as load balancers.
type service struct {
	*services.Service
	nodes     *servers // none: no node is different from another
	claims    *claims
	shortfall shortfall
	text      int          // bytes that its load balancers may still have
	served    []servedPort // as place has found
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
	if svc == nil {
		return nil, nil
	}
	model := services.New(c.Config.services(), svc, c.slices(svc))
	if model == nil {
		return nil, nil
	}
	s := &service{Service: model, nodes: &servers{}, text: maxServiceText, shortfall: slices.Clone(model.Refused)}
	if NeedsNodes(c, svc) {
		s.nodes = c.servers()
	}
	s.claims = newClaims(c, model.Owner, s.nodes, &s.shortfall)
	var rows []Row
	for proto, placed := range s.place() {
		for at, here := range placed {
			row := s.loadBalancer(proto, at.suffix(), here.vips)
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

// services are the settings that decide about Services.
func (cfg Config) services() services.Config {
	return services.Config{Pods: cfg.ClusterCIDRs, Services: cfg.ServiceCIDRs, Join: cfg.JoinSubnets, ExternalIPs: cfg.ExternalIPs}
}

func (s *service) loadBalancer(proto corev1.Protocol, suffix string, vips map[string]string) LoadBalancer {
	options := loadBalancerOptions(proto)
	if s.Affinity > 0 {
		options["affinity_timeout"] = strconv.Itoa(min(int(s.Affinity.Seconds()), longestAffinity))
	}
	name := s.Namespace + "/" + s.Name
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

// longestAffinity is OVN's, in seconds; Kubernetes allows a day.
const longestAffinity = 65535

// NeedsNodes reports whether the Service's rows depend on nodes.
func NeedsNodes(c *Cluster, svc *corev1.Service) bool {
	return c.Config.services().DependsOnNodes(svc, c.slices(svc))
}
