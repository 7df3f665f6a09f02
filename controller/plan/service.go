package plan

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// hairpinAddresses are the addresses to which OVN translates a pod that reaches itself by a
// service. They are those of ovn-kubernetes, so that policies written for it keep working.
const hairpinAddresses = "169.254.169.5 fd69::5"

// service is one Service while its rows are planned. Package service has decided what the object
// means; this package renders it as load balancers (lbscope.go) and ACLs (sources.go).
type service struct {
	*services.Service
	nodes           *serviceNodes // empty if no row depends on nodes
	arbiter         *arbiter      // decides which frontends the Service gets
	shortfall       shortfall
	remainingBytes  int          // of maxServiceBytes; negative: the load balancers exceed it
	servedPorts     []servedPort // set by vipsByScope
	reducedFamilies []string     // families with more endpoints than a frontend uses, set by vipsByScope
}

// servedPort is a port of a Service with the external addresses at which the Service gets it.
type servedPort struct {
	proto    corev1.Protocol
	number   int
	external []netip.Addr
}

// serviceRows returns the load balancers of a Service, and the ACLs of its
// loadBalancerSourceRanges. Usually there is one load balancer per protocol, for all switches and
// gateway routers. There are more if nodes, or switches and routers, need different backends
// (lbscope.go), and if the Service has many VIPs (split).
func serviceRows(c *Cluster, key Key) ([]Row, error) {
	account := services.Key{Kind: services.KindService, Namespace: key.Namespace, Name: key.Name}
	if beyondBudget := c.refused(account); beyondBudget != nil {
		return nil, newUnserved(beyondBudget)
	}

	s := c.newService(key)
	if s == nil {
		return nil, nil
	}

	rows := s.balancers()
	rows = append(rows, s.sourceRows()...)

	return rows, newUnserved(s.shortfall...)
}

// newService reads the Service and its slices. It returns nil if there is no such Service, or it is
// not served.
func (c *Cluster) newService(key Key) *service {
	svc := c.Service(key.Namespace, key.Name)
	if svc == nil {
		return nil
	}

	model := services.New(c.Config.services(), svc, c.slicesOf(svc))
	if model == nil {
		return nil
	}

	nodes := &serviceNodes{}
	if NeedsNodes(c, svc) {
		nodes = c.serviceNodes()
	}

	s := &service{
		Service: model, nodes: nodes, remainingBytes: maxServiceBytes, shortfall: slices.Clone(model.Refused),
	}
	s.arbiter = newArbiter(c, model.Owner, s.nodes, &s.shortfall)

	return s
}

// balancers returns the Service's load balancers, unsorted. It sets servedPorts, which sourceRows
// reads.
func (s *service) balancers() []Row {
	var rows []Row

	for proto, byScope := range s.vipsByScope() {
		for scope, scoped := range byScope {
			for suffix, vips := range split(scope.suffix(), scoped.vips) {
				row := s.loadBalancer(proto, suffix, vips)
				row.Groups, row.Switches, row.Routers = scoped.parents(scope)

				if scope.keepClient {
					row.Options["skip_snat"] = "true"
				}

				// A scope may have no members, such as the other nodes if all nodes differ.
				if len(row.Groups)+len(row.Switches)+len(row.Routers) > 0 {
					rows = append(rows, row)
				}
			}
		}
	}

	return rows
}

// balancerVIPs is the largest average number of VIPs of a scope's load balancers. With more VIPs,
// the scope has more load balancers, because OVN makes the flows of a whole load balancer again if
// one of its VIPs changes.
const balancerVIPs = 128

// split divides the VIPs of one scope among load balancers. It returns the VIPs by the suffix of
// the load balancer's name. The number of load balancers is a power of two, and a VIP's load
// balancer depends only on a hash of the VIP and on this number. So most VIPs stay where they are
// if others are added or removed.
func split(suffix string, vips map[string]string) map[string]map[string]string {
	n := uint32(1)
	for len(vips) > int(n)*balancerVIPs {
		n *= 2
	}

	if n == 1 {
		return map[string]map[string]string{suffix: vips}
	}

	out := map[string]map[string]string{}

	for vip, backends := range vips {
		name := suffix
		if i := crc32.ChecksumIEEE([]byte(vip)) % n; i > 0 {
			name = fmt.Sprint(suffix, "_", i)
		}

		if out[name] == nil {
			out[name] = map[string]string{}
		}

		out[name][vip] = backends
	}

	return out
}

// services returns the settings of package service.
func (cfg Config) services() services.Config {
	return services.Config{
		Pods: cfg.ClusterCIDRs, Services: cfg.ServiceCIDRs, Join: cfg.JoinSubnets,
		ExternalIPs: cfg.ExternalIPs, TrustEndpointSlices: cfg.TrustSlices,
	}
}

// loadBalancer returns a load balancer of the Service without its parents.
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

// loadBalancerOptions returns the options of every load balancer of the protocol, in a map of its
// own.
func loadBalancerOptions(proto corev1.Protocol) map[string]string {
	options := map[string]string{
		"event":              "false",
		"reject":             "true",
		"skip_snat":          "false",
		"neighbor_responder": "none",
		"hairpin_snat_ip":    hairpinAddresses,
	}
	if proto == corev1.ProtocolUDP {
		// A client that keeps sending from one port would stay with an endpoint that no longer
		// exists. TCP connections end by themselves.
		options["ct_flush"] = "true"
	}

	return options
}

// longestAffinity is the highest value of affinity_timeout that OVN accepts, in seconds. Kubernetes
// allows a day, which is shortened.
const longestAffinity = 65535

// NeedsNodes reports whether the Service's rows depend on nodes.
func NeedsNodes(c *Cluster, svc *corev1.Service) bool {
	return c.Config.services().DependsOnNodes(svc, c.slicesOf(svc))
}
