package plan

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// server is a node as services see it.
type server struct {
	name, zone string
	own        []netip.Addr // what its gateway router has in common with the host
	addresses  []netip.Addr // of the node
	nodePorts  []netip.Addr // of those, where it serves node ports
	router     bool         // it has a gateway router
}

// servers are the nodes that have a switch, as services see them. It is never
// changed. A node whose annotations are malformed is left out; that is reported
// where the node is planned.
type servers struct {
	list   []*server // by name
	byName map[string]*server
	byAddr map[netip.Addr]*server
	hosts  map[netip.Addr]struct{}     // annotation.HostAddresses of every node, also of those left out
	parsed map[*corev1.Node]parsedNode // every node
}

// parsedNode is what one version of a node says.
type parsedNode struct {
	server *server // nil: it is left out
	hosts  []netip.Addr
}

// servers returns those of the nodes as they are. What nodes say is read once
// for each version of a node and not for each service: reading it costs more than
// planning one. A store's objects are not changed in place, so a pointer names a version.
func (c *Cluster) servers() *servers {
	nodes := c.Stores[KindNode].List()
	last := c.lastServers.Load()
	if last != nil && last.areOf(nodes) {
		return last
	}
	s := newServers(nodes, last, c.Config)
	c.lastServers.Store(s)
	return s
}

func (s *servers) areOf(nodes []any) bool {
	for _, obj := range nodes {
		if node, ok := obj.(*corev1.Node); !ok || !s.knows(node) {
			return false
		}
	}
	return len(nodes) == len(s.parsed)
}

func (s *servers) knows(node *corev1.Node) bool {
	_, ok := s.parsed[node]
	return ok
}

func newServers(nodes []any, last *servers, cfg Config) *servers {
	s := &servers{
		byName: map[string]*server{}, byAddr: map[netip.Addr]*server{}, hosts: map[netip.Addr]struct{}{}, parsed: map[*corev1.Node]parsedNode{},
	}
	for _, obj := range nodes {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		if last != nil && last.knows(node) {
			s.parsed[node] = last.parsed[node]
		} else {
			s.parsed[node] = parsedNode{newServer(node, cfg), annotation.HostAddresses(node)}
		}
		for _, a := range s.parsed[node].hosts {
			s.hosts[a] = struct{}{}
		}
		if n := s.parsed[node].server; n != nil {
			s.list = append(s.list, n)
			s.byName[n.name] = n
		}
	}
	slices.SortFunc(s.list, func(a, b *server) int { return strings.Compare(a.name, b.name) })
	for _, n := range slices.Backward(s.list) { // of two that say the same address, the first has it
		for _, a := range n.addresses {
			s.byAddr[a] = n
		}
	}
	return s
}

func newServer(node *corev1.Node, cfg Config) *server {
	n, err := parseNode(node, cfg)
	if err != nil || len(n.subnets) == 0 {
		return nil
	}
	s := &server{
		name: n.name, zone: node.Labels[corev1.LabelTopologyZone],
		own: n.shared(), addresses: n.addresses(cfg), router: n.hasGateway(),
	}
	if s.router && n.gateway.NodePorts {
		s.nodePorts = s.addresses
	}
	return s
}

// isHost reports whether the address is one of a host's.
func (s *servers) isHost(a netip.Addr) bool {
	_, ok := s.hosts[a]
	return ok
}

// names returns those of switches, or of routers where there is one.
func names(nodes []*server, kind kind) []string {
	var out []string
	for _, n := range nodes {
		switch {
		case kind == atSwitches:
			out = append(out, nodeSwitch(n.name))
		case kind == atRouters && n.router:
			out = append(out, "GR_"+n.name)
		}
	}
	return out
}

// hosts are the addresses of all nodes' hosts of the family, sorted.
func (c *Cluster) hosts(is4 bool) []string {
	var all []netip.Addr
	for node := range Objects[corev1.Node](c, KindNode) {
		var own []netip.Prefix
		if err := optional(&own, node.Annotations, annotation.ParseHostCIDRs); err == nil {
			all = append(all, services.OfFamily(usable(own, c.Config), is4)...)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	var out []string
	for _, a := range slices.Compact(all) {
		out = append(out, a.String())
	}
	return out
}
