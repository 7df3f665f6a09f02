package service

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Units counts what objects ask of a node's tables. The numbers do not depend on the node, so that
// the controller and all agents have the same ones. They are upper bounds of the entries, except
// that a node with several addresses of a family has an entry of a node port for each.
type Units struct {
	Frontends int // ports times addresses; a node port or host port is one per family
	Backends  int // endpoints of all ports, as if each port of a slice were one of the Service
	Addresses int // external addresses
	Local     int // frontends that a host's socket may serve: externalTrafficPolicy Local, TCP
	Flows     int // of OVN on each node, as if the cluster had one node with one address of each family; pods: 0
}

// TableUnits returns the room in a node's tables: sock_frontends, sock_backends, host_addrs and
// lookup_targets. Flows have no fixed table. Their number keeps the flows of all Services finite, and
// is so large that 90 % of the frontends fit with about four endpoints each, so the frontends are
// used up first.
func TableUnits() Units {
	return Units{Frontends: 131072, Backends: 262144, Addresses: 65536, Local: 65536, Flows: 8 * 131072}
}

// namespaceFlows is the number of flows per frontend of a namespace's budget. Together with the
// flows of its policies (docs/networkpolicy.md), the default budget is less than the 60,000 flows that
// a tenant may cost a node.
const namespaceFlows = 2

// flowCost has the flows of OVN that a load balancer costs a node. They bound OVN 23.03 to 25.03
// (TestServiceCost in controller/nb).
type flowCost struct{ frontend, nodePort, backend int }

// costOf returns the flows of a load balancer with or without session affinity.
func costOf(affinity bool) flowCost {
	if affinity {
		return flowCost{6, 7, 5}
	}

	return flowCost{4, 5, 1}
}

// rangeFlows is the number of flows of each prefix, address and port in the ACL of
// loadBalancerSourceRanges.
const rangeFlows = 3

// mostFlows is the highest number of flows of an object. Sums of two fit an int of 32 bits.
const mostFlows = 1<<30 - 1

func (u Units) plus(o Units) Units {
	return Units{
		u.Frontends + o.Frontends,
		u.Backends + o.Backends,
		u.Addresses + o.Addresses,
		u.Local + o.Local,
		u.Flows + o.Flows,
	}
}

func (u Units) minus(o Units) Units {
	return Units{
		u.Frontends - o.Frontends,
		u.Backends - o.Backends,
		u.Addresses - o.Addresses,
		u.Local - o.Local,
		u.Flows - o.Flows,
	}
}

func (u Units) most(o Units) Units {
	return Units{
		max(u.Frontends, o.Frontends),
		max(u.Backends, o.Backends),
		max(u.Addresses, o.Addresses),
		max(u.Local, o.Local),
		max(u.Flows, o.Flows),
	}
}

func (u Units) least(o Units) Units {
	return Units{
		min(u.Frontends, o.Frontends),
		min(u.Backends, o.Backends),
		min(u.Addresses, o.Addresses),
		min(u.Local, o.Local),
		min(u.Flows, o.Flows),
	}
}

// numbers returns the numbers of u, to look at them one by one.
func (u *Units) numbers() [5]*int {
	return [...]*int{&u.Frontends, &u.Backends, &u.Addresses, &u.Local, &u.Flows}
}

// times returns u * n / d. Products do not overflow on machines with 32 bits.
func (u Units) times(n, d int) Units {
	scale := func(v int) int { return int(int64(v) * int64(n) / int64(d)) }
	return Units{scale(u.Frontends), scale(u.Backends), scale(u.Addresses), scale(u.Local), scale(u.Flows)}
}

func (u Units) within(limit Units) bool {
	return u.Frontends <= limit.Frontends && u.Backends <= limit.Backends &&
		u.Addresses <= limit.Addresses && u.Local <= limit.Local && u.Flows <= limit.Flows
}

// describe lists the numbers of u whose numbers in of are not 0.
func (u Units) describe(of Units) string {
	var out []string

	for _, n := range []struct {
		number, of int
		what       string
	}{
		{u.Frontends, of.Frontends, "frontends"},
		{u.Backends, of.Backends, "backends"},
		{u.Addresses, of.Addresses, "external addresses"},
		{u.Local, of.Local, "frontends of policy Local"},
		{u.Flows, of.Flows, "flows on each node"},
	} {
		if n.of != 0 {
			out = append(out, fmt.Sprintf("%d %s", n.number, n.what))
		}
	}

	return strings.Join(out, ", ")
}

// String returns the numbers that are not 0.
func (u Units) String() string { return u.describe(u) }

// Units returns what the Service asks of a node's tables.
func (s *Service) Units() Units {
	families := 0

	for _, is4 := range []bool{true, false} {
		if s.HasFamily(is4) {
			families++
		}
	}

	sets := 1 // of backends for each port
	if s.InternalLocal {
		sets++
	}

	if len(s.Announced) > 0 && len(s.ranges) > 0 {
		sets++
	}

	u := Units{Addresses: len(s.External)}
	for _, p := range s.Ports {
		outside := len(s.External)
		if p.NodePort != 0 {
			outside += families
		}

		u.Frontends += len(s.ClusterIPs) + outside
		if s.ExternalLocal && p.Protocol == corev1.ProtocolTCP {
			u.Local += outside
		}
	}

	for _, slice := range s.slices {
		if s.HasFamily(slice.AddressType == discoveryv1.AddressTypeIPv4) {
			u.Backends += sets * min(len(s.Ports), len(slice.Ports)) * len(slice.Endpoints)
		}
	}

	u.Flows = int(min(s.flows(), mostFlows))

	return u
}

// flows returns the flows of OVN that the Service costs each node. Traffic policies and hints cost
// none: they replace the load balancer of a switch or router, or leave endpoints out.
func (s *Service) flows() int64 {
	cost := costOf(s.Affinity > 0)
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

		fronts := len(s.Ports)*addresses*cost.frontend + nodePorts*cost.nodePort
		total += int64(addresses + min(1, nodePorts) + fronts)

		for _, slice := range s.slices {
			if is4 == (slice.AddressType == discoveryv1.AddressTypeIPv4) {
				// If some ports are not in the slice, those with a node port count.
				ports := min(len(s.Ports), len(slice.Ports))

				backends := int64(len(slice.Endpoints)) * int64(cost.backend)
				if s.mayHaveHosts(slice) {
					backends++ // the router of the host's node has another address for it than the switch
				}

				total += int64(ports*addresses+min(ports, nodePorts)) * backends
			}
		}

		total += int64(s.rangeFlows(is4))
	}

	return total
}

// mayHaveHosts reports whether the slice may have endpoints of hosts: addresses that are no pod's.
func (s *Service) mayHaveHosts(slice *discoveryv1.EndpointSlice) bool {
	for i := range slice.Endpoints {
		for _, a := range parseAddrs(slice.Endpoints[i].Addresses[:min(1, len(slice.Endpoints[i].Addresses))]...) {
			if !within(s.cfg.Pods, a) {
				return true
			}
		}
	}

	return false
}

// rangeFlows returns the flows of the ACLs of loadBalancerSourceRanges, which drop packets from all
// other addresses. There is one for each protocol.
func (s *Service) rangeFlows(is4 bool) int {
	announced, ranges := OfFamily(s.Announced, is4), s.SourceRanges(is4)
	if len(announced) == 0 || len(ranges) == 0 {
		return 0
	}

	outside, total := outsidePrefixes(ranges), 0

	for _, proto := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		ports := 0

		for _, p := range s.Ports {
			if p.Protocol == proto {
				ports++
			}
		}

		if ports > 0 && outside > 0 {
			total += rangeFlows * (1 + outside + len(announced) + ports)
		}
	}

	return total
}

// outsidePrefixes returns an upper bound of the prefixes that cover what is outside of the ranges,
// without computing them. Each node of the tree of prefixes on the way to a range has at most one
// such prefix below it, and the first n levels of the tree have at most 2^n nodes.
func outsidePrefixes(ranges []netip.Prefix) int {
	longer := [129]int{} // ranges with more than that many bits

	for _, r := range ranges {
		for bits := range r.Bits() {
			longer[bits]++
		}
	}

	n := 0
	for bits, most := range longer {
		n += min(most, 1<<min(bits, 20))
	}

	return min(n, MaxSourcePrefixes)
}

// Units returns what the pod's host ports ask of its node's tables.
func (p *Pod) Units(cfg Config) Units {
	var u Units

	for _, port := range p.Ports {
		for _, is4 := range []bool{true, false} {
			if cfg.hasFamily(is4) &&
				(port.Everywhere(is4) || port.At.Is4() == is4 && !port.At.IsUnspecified()) {
				u.Frontends, u.Backends = u.Frontends+1, u.Backends+1
			}
		}
	}

	return u
}

// Units returns what the object asks of a node's tables.
func (m Meaning) Units(cfg Config) Units {
	switch {
	case m.Service != nil:
		return m.Service.Units()
	case m.Pod != nil:
		return m.Pod.Units(cfg)
	}

	return Units{}
}

// Default values of Shares.
const (
	DefaultNamespaceFrontends = 16384
	DefaultTableShare         = 90
)

// Shares are the settings of budgets. Controller and agents must have the same. 0 stands for the
// default.
type Shares struct {
	// Namespace is the frontends of the Services of a namespace. The share of other tables is the
	// same, and each frontend has two flows.
	Namespace int
	Tables    int // percent of a node's tables for Services; the rest is for pods' host ports
}

// Validate returns an error for numbers that make no budget.
func (s Shares) Validate() error {
	var errs []error
	if s.Namespace < 0 {
		errs = append(errs, fmt.Errorf("frontends of a namespace: %d is negative", s.Namespace))
	}

	if s.Tables < 0 || s.Tables > 95 {
		errs = append(errs,
			fmt.Errorf("share of Services in the tables: %d is not 1 to 95 percent", s.Tables))
	}

	return errors.Join(errs...)
}

func (s Shares) defaulted() Shares {
	if s.Namespace == 0 {
		s.Namespace = DefaultNamespaceFrontends
	}

	if s.Tables == 0 {
		s.Tables = DefaultTableShare
	}

	return s
}

// Budget bounds the units of the objects in a Ledger.
type Budget struct {
	Namespace Units // of each namespace
	Total     Units // of all
	Reserve   Units // the part of Total that only default and kube-system use

	settings [2]string // that change Namespace and Total
}

// Services returns the budget of all Services.
func (s Shares) Services() Budget {
	s = s.defaulted()
	total := TableUnits().times(s.Tables, 100)
	namespace := TableUnits().times(s.Namespace, TableUnits().Frontends)
	namespace.Flows = namespaceFlows * s.Namespace

	return Budget{
		Namespace: namespace, Total: total, Reserve: total.times(1, 10),
		settings: [2]string{"--namespace-frontends", "--service-table-share"},
	}
}

// HostPorts returns the budget of the pods with host ports on one node.
func (s Shares) HostPorts() Budget {
	total := TableUnits().minus(s.Services().Total)

	return Budget{
		Namespace: total.times(1, 4),
		Total:     total,
		Reserve:   total.times(1, 10),
		settings:  [2]string{"--service-table-share", "--service-table-share"},
	}
}

// Accounts decides which Services, and which pods with host ports of each node, are served within
// their budgets. Its methods must not be called concurrently.
type Accounts struct {
	shares   Shares
	services *Ledger
	pods     map[string]*Ledger // by node
	nodes    map[Key]string     // of the pods
	changed  map[string]bool    // nodes of the pods that have changed since the last Settle
}

// NewAccounts returns empty Accounts.
func NewAccounts(shares Shares) *Accounts {
	return &Accounts{
		shares:   shares,
		services: NewLedger(shares.Services()),
		pods:     map[string]*Ledger{},
		nodes:    map[Key]string{},
		changed:  map[string]bool{},
	}
}

// Set records an object's meaning, which is empty for an object without frontends. Settle must be
// called before Refused.
func (a *Accounts) Set(k Key, m Meaning, cfg Config) {
	switch {
	case k.Kind == KindService && m.Service == nil:
		a.services.Delete(k)
		return
	case k.Kind == KindService:
		a.services.Set(m.Service.Owner, m.Units(cfg))
		return
	}

	node, known := a.nodes[k]
	if known && (m.Pod == nil || m.Pod.Node != node) {
		a.pods[node].Delete(k)
		delete(a.nodes, k)

		a.changed[node] = true
	}

	if m.Pod == nil {
		return
	}

	l := a.pods[m.Pod.Node]
	if l == nil {
		l = NewLedger(a.shares.HostPorts())
		a.pods[m.Pod.Node] = l
	}

	l.Set(m.Pod.Owner, m.Units(cfg))

	a.nodes[k] = m.Pod.Node
	a.changed[m.Pod.Node] = true
}

// Settle decides which objects are served. It returns the keys of those that are served now and
// were not at the last Settle, or the reverse, in any order.
func (a *Accounts) Settle() []Key {
	out := a.services.Settle()

	for node := range a.changed {
		l := a.pods[node]
		out = append(out, l.Settle()...)

		if l.Len() == 0 {
			delete(a.pods, node)
		}
	}

	clear(a.changed)

	return out
}

// Keys returns the keys of all objects, in any order.
func (a *Accounts) Keys() []Key {
	return slices.AppendSeq(slices.Collect(maps.Keys(a.services.entries)), maps.Keys(a.nodes))
}

// Refused returns the reason why an object is not served, or nil.
func (a *Accounts) Refused(k Key) error {
	if k.Kind == KindService {
		return a.services.Refused(k)
	}

	if l := a.pods[a.nodes[k]]; l != nil {
		return l.Refused(k)
	}

	return nil
}
