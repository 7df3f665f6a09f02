package plan

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// server is the part of a node that services need.
type server struct {
	name, zone string
	own        []netip.Addr // shared by its gateway router and the host
	addresses  []netip.Addr // of the node
	nodePorts  []netip.Addr // the addresses at which it serves node ports
	router     bool         // it has a gateway router
}

// servers are the nodes with a switch. It is immutable. A node with malformed annotations is left
// out; the error is reported where the node is planned.
type servers struct {
	list   []*server // by name
	byName map[string]*server
	byAddr map[netip.Addr]*server
	hosts  map[netip.Addr]struct{}     // annotation.HostAddresses of every node, including nodes left out
	parsed map[*corev1.Node]parsedNode // every node
}

// parsedNode is the result of parsing one version of a node.
type parsedNode struct {
	server *server // nil: the node is left out
	hosts  []netip.Addr
}

// servers returns the current nodes. Each version of a node is parsed once and not for each
// service, because parsing it costs more than planning a service. Objects in a store are not
// changed in place, so a pointer identifies a version.
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
		if node, ok := obj.(*corev1.Node); !ok || !s.has(node) {
			return false
		}
	}

	return len(nodes) == len(s.parsed)
}

func (s *servers) has(node *corev1.Node) bool {
	_, ok := s.parsed[node]
	return ok
}

func newServers(nodes []any, last *servers, cfg Config) *servers {
	s := &servers{
		byName: map[string]*server{},
		byAddr: map[netip.Addr]*server{},
		hosts:  map[netip.Addr]struct{}{},
		parsed: map[*corev1.Node]parsedNode{},
	}

	for _, obj := range nodes {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}

		if last != nil && last.has(node) {
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

	for _, n := range slices.Backward(s.list) { // the first of two nodes with the same address gets it
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
		own: n.sharedAddresses(), addresses: n.addresses(cfg), router: n.hasGateway(),
	}
	if s.router && n.gateway.NodePorts {
		s.nodePorts = s.addresses
	}

	return s
}

// isHost reports whether the address belongs to a host.
func (s *servers) isHost(a netip.Addr) bool {
	_, ok := s.hosts[a]
	return ok
}

// VIPShare returns the part of a frontend that a VIP of an owner is. A node port is one frontend with
// a VIP for each node.
func (c *Cluster) VIPShare(owner Key, vip string) float64 {
	if owner.Kind != KindService {
		return 1
	}

	nodes := c.servers()
	if a, err := netip.ParseAddrPort(vip); err == nil && nodes.byAddr[a.Addr()] != nil {
		return 1 / float64(len(nodes.list))
	}

	return 1
}

// names returns the names of the nodes' switches, or of the routers of nodes that have one.
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

// hosts returns the addresses of all nodes' hosts in the family, sorted.
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
