package plan

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// serviceNode is what plans of Services and host ports need to know of a node with a switch.
type serviceNode struct {
	name, zone        string
	sharedAddresses   []netip.Addr // that its gateway router and its host have in common
	addresses         []netip.Addr // all that clients may use, including the shared ones
	nodePortAddresses []netip.Addr // at which it serves node ports and host ports
	hasGatewayRouter  bool
}

// serviceNodes are the nodes with a switch, as plans of Services and host ports see them. It is
// immutable. A node with malformed annotations is left out: its own plan reports the error.
type serviceNodes struct {
	list   []*serviceNode // by name
	byName map[string]*serviceNode
	byAddr map[netip.Addr]*serviceNode
	hosts  map[netip.Addr]struct{}     // Trust.HostAddresses of every node, also of nodes left out
	parsed map[*corev1.Node]parsedNode // every node, also those left out
}

// parsedNode is the result of parsing one version of a node.
type parsedNode struct {
	node  *serviceNode // nil: the node is left out
	hosts []netip.Addr
}

// serviceNodes returns the current nodes. Each version of a node is parsed once and not for each
// Service, because parsing it costs more than planning a Service. Objects in a store are not
// changed in place, so a pointer identifies a version.
func (c *Cluster) serviceNodes() *serviceNodes {
	objs := c.Stores[KindNode].List()

	last := c.lastServiceNodes.Load()
	if last != nil && last.isOf(objs) {
		return last
	}

	s := newServiceNodes(objs, last, c.Config)
	c.lastServiceNodes.Store(s)

	return s
}

// isOf reports whether s was made from exactly these versions of the nodes.
func (s *serviceNodes) isOf(objs []any) bool {
	for _, obj := range objs {
		if node, ok := obj.(*corev1.Node); !ok || !s.hasParsed(node) {
			return false
		}
	}

	return len(objs) == len(s.parsed)
}

func (s *serviceNodes) hasParsed(node *corev1.Node) bool {
	_, ok := s.parsed[node]
	return ok
}

// newServiceNodes parses the nodes, except those that last has parsed. last may be nil.
func newServiceNodes(objs []any, last *serviceNodes, cfg Config) *serviceNodes {
	s := &serviceNodes{
		byName: map[string]*serviceNode{},
		byAddr: map[netip.Addr]*serviceNode{},
		hosts:  map[netip.Addr]struct{}{},
		parsed: map[*corev1.Node]parsedNode{},
	}

	for _, obj := range objs {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}

		if last != nil && last.hasParsed(node) {
			s.parsed[node] = last.parsed[node]
		} else {
			s.parsed[node] = parsedNode{newServiceNode(node, cfg), cfg.Hosts.HostAddresses(node)}
		}

		for _, a := range s.parsed[node].hosts {
			s.hosts[a] = struct{}{}
		}

		if n := s.parsed[node].node; n != nil {
			s.list = append(s.list, n)
			s.byName[n.name] = n
		}
	}

	slices.SortFunc(s.list, func(a, b *serviceNode) int { return strings.Compare(a.name, b.name) })

	// If two nodes have the same address, the one with the lower name gets it, so it is written
	// last.
	for _, n := range slices.Backward(s.list) {
		for _, a := range n.addresses {
			s.byAddr[a] = n
		}
	}

	return s
}

// newServiceNode returns nil for a node without a switch and for malformed annotations.
func newServiceNode(node *corev1.Node, cfg Config) *serviceNode {
	n, err := parseNode(node, cfg)
	if err != nil || len(n.subnets) == 0 {
		return nil
	}

	s := &serviceNode{
		name:             n.name,
		zone:             node.Labels[corev1.LabelTopologyZone],
		sharedAddresses:  n.hosts.shared,
		addresses:        n.addresses(cfg),
		hasGatewayRouter: n.hasGateway(),
	}
	if s.hasGatewayRouter && n.gateway.NodePorts {
		s.nodePortAddresses = s.addresses
	}

	return s
}

// isHost reports whether the address belongs to a host.
func (s *serviceNodes) isHost(a netip.Addr) bool {
	_, ok := s.hosts[a]
	return ok
}

// nodeOf returns the node that the endpoint's slice names, or else the node that has its address.
func (s *serviceNodes) nodeOf(e services.Endpoint) *serviceNode {
	if e.Node != "" {
		return s.byName[e.Node]
	}

	return s.byAddr[e.Addr.Addr()]
}

// VIPShare returns which part of a frontend one VIP of an owner is, between 0 and 1. A node port is
// one frontend, but a VIP for each node, so each of these is only a share of it. All other VIPs are
// whole frontends. The limit on changes of load balancers counts in these shares
// (controller/reconcile/throttle.go).
func (c *Cluster) VIPShare(owner Key, vip string) float64 {
	if owner.Kind != KindService {
		return 1
	}

	nodes := c.serviceNodes()
	if a, err := netip.ParseAddrPort(vip); err == nil && nodes.byAddr[a.Addr()] != nil {
		return 1 / float64(len(nodes.list))
	}

	return 1
}
