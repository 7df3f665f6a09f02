package service

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster"
)

// This file computes upper bounds of the entries and flows that an object needs in a node's tables.
// They depend on the object and the settings alone, so the controller and all agents compute the
// same.

// flowCost has the numbers of OVN's flows on each node for one frontend, one node port and one
// backend of a frontend. They are upper bounds for OVN 23.03 to 25.03 (TestServiceCost in
// controller/nb).
type flowCost struct{ frontend, nodePort, backend int }

// flowCostOf returns the cost of a load balancer with or without session affinity.
func flowCostOf(affinity bool) flowCost {
	if affinity {
		return flowCost{6, 7, 5}
	}

	return flowCost{4, 5, 1}
}

// flowsPerMatch is the number of flows for each prefix, address and port in the ACL of
// loadBalancerSourceRanges.
const flowsPerMatch = 3

// maxFlows is the highest number of flows of an object. The sum of two such numbers fits an int of
// 32 bits.
const maxFlows = 1<<30 - 1

// Units returns the entries that the Service needs in a node's tables.
func (s *Service) Units() Units {
	families := 0

	for _, is4 := range []bool{true, false} {
		if s.HasFamily(is4) {
			families++
		}
	}

	backendSets := 1 // of each port
	if s.InternalLocal {
		backendSets++ // cluster IPs have only the backends of the node
	}

	if len(s.Announced) > 0 && len(s.sourceRanges) > 0 {
		backendSets++ // addresses with source ranges have their own
	}

	u := Units{Addresses: len(s.External)}
	for _, p := range s.Ports {
		outside := len(s.External) // frontends of the port for clients outside
		if p.NodePort != 0 {
			outside += families
		}

		u.Frontends += len(s.ClusterIPs) + outside
		if s.ExternalLocal && p.Protocol == corev1.ProtocolTCP {
			u.Local += outside
		}
	}

	for _, slice := range s.endpointSlices {
		if s.HasFamily(slice.AddressType == discoveryv1.AddressTypeIPv4) {
			u.Backends += backendSets * min(len(s.Ports), len(slice.Ports)) * len(slice.Endpoints)
		}
	}

	u.Flows = int(min(s.flows(), maxFlows))

	return u
}

// flows returns the number of OVN's flows on each node for the Service. Traffic policies and
// hints need no additional flows: they replace the load balancer of a switch or router, or leave
// endpoints out.
func (s *Service) flows() int64 {
	cost := flowCostOf(s.Affinity > 0)
	nodePorts := 0

	for _, p := range s.Ports {
		if p.NodePort != 0 {
			nodePorts++
		}
	}

	total := int64(0)

	for _, is4 := range []bool{true, false} {
		if !s.HasFamily(is4) {
			continue
		}

		addresses := len(OfFamily(s.ClusterIPs, is4)) + len(OfFamily(s.External, is4))

		// Beside the frontends, each address costs one flow, and so do all node ports together.
		frontends := len(s.Ports)*addresses*cost.frontend + nodePorts*cost.nodePort
		total += int64(addresses + min(1, nodePorts) + frontends)

		for _, slice := range s.endpointSlices {
			if is4 == (slice.AddressType == discoveryv1.AddressTypeIPv4) {
				total += s.sliceFlows(slice, cost, addresses, nodePorts)
			}
		}

		total += int64(s.rangeFlows(is4))
	}

	return total
}

// sliceFlows returns the number of flows for the endpoints of a slice, as backends of a Service
// with that many addresses and node ports.
func (s *Service) sliceFlows(slice *discoveryv1.EndpointSlice, cost flowCost, addresses, nodePorts int) int64 {
	// If the slice has fewer ports than the Service, assume that it has the ports with a node
	// port.
	ports := min(len(s.Ports), len(slice.Ports))
	frontends := int64(ports*addresses + min(ports, nodePorts))

	flows := int64(len(slice.Endpoints)) * int64(cost.backend)
	if s.mayHaveHosts(slice) {
		flows++ // the router of the host's node has another address for the host than the switch
	}

	return frontends * flows
}

// mayHaveHosts reports whether the slice may have endpoints of hosts: addresses that are no pod's.
func (s *Service) mayHaveHosts(slice *discoveryv1.EndpointSlice) bool {
	for i := range slice.Endpoints {
		for _, a := range endpointAddrs(&slice.Endpoints[i]) {
			if !cluster.Contains(s.cfg.Pods, a) {
				return true
			}
		}
	}

	return false
}

// rangeFlows returns the number of flows for the ACLs of loadBalancerSourceRanges, which drop
// packets from all other addresses. Each protocol has one ACL.
func (s *Service) rangeFlows(is4 bool) int {
	announced, ranges := OfFamily(s.Announced, is4), s.SourceRanges(is4)
	if len(announced) == 0 || len(ranges) == 0 {
		return 0
	}

	outside := outsidePrefixes(ranges)
	total := 0

	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		ports := 0

		for _, p := range s.Ports {
			if p.Protocol == proto {
				ports++
			}
		}

		if ports > 0 && outside > 0 {
			total += flowsPerMatch * (1 + outside + len(announced) + ports)
		}
	}

	return total
}

// outsidePrefixes returns an upper bound of the prefixes that cover the addresses outside of the
// ranges, without computing them. In the binary tree of prefixes, each node on the way from the
// root to a range has at most one such prefix beside the way. At a length of n bits, there are at
// most as many such nodes as longer ranges, and at most 2^n.
func outsidePrefixes(ranges []netip.Prefix) int {
	var longer [129]int // the number of ranges whose prefix is longer than the index

	for _, r := range ranges {
		for bits := range r.Bits() {
			longer[bits]++
		}
	}

	total := 0
	for bits, nodes := range longer {
		total += min(nodes, 1<<min(bits, 20)) // 2^20 is already more than MaxSourcePrefixes
	}

	return min(total, MaxSourcePrefixes)
}

// Units returns the entries that the pod's host ports need in its node's tables.
func (p *Pod) Units(cfg Config) Units {
	var u Units

	for _, port := range p.Ports {
		for _, is4 := range []bool{true, false} {
			if cfg.hasFamily(is4) &&
				(port.Everywhere(is4) || port.At.Is4() == is4 && !port.At.IsUnspecified()) {
				u.Frontends++
				u.Backends++
			}
		}
	}

	return u
}

// Units returns the entries that the object needs in a node's tables.
func (m Meaning) Units(cfg Config) Units {
	switch {
	case m.Service != nil:
		return m.Service.Units()
	case m.Pod != nil:
		return m.Pod.Units(cfg)
	}

	return Units{}
}
