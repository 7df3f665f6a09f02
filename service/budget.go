package service

import (
	"errors"
	"fmt"
	"maps"
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
	Local     int // front ends that a host's socket may serve: externalTrafficPolicy Local, TCP
}

// TableUnits returns the room in a node's tables: sock_frontends, sock_backends, host_addrs and
// lookup_targets.
func TableUnits() Units {
	return Units{Frontends: 131072, Backends: 262144, Addresses: 65536, Local: 65536}
}

func (u Units) plus(o Units) Units {
	return Units{u.Frontends + o.Frontends, u.Backends + o.Backends, u.Addresses + o.Addresses, u.Local + o.Local}
}

func (u Units) minus(o Units) Units {
	return Units{u.Frontends - o.Frontends, u.Backends - o.Backends, u.Addresses - o.Addresses, u.Local - o.Local}
}

func (u Units) most(o Units) Units {
	return Units{max(u.Frontends, o.Frontends), max(u.Backends, o.Backends), max(u.Addresses, o.Addresses), max(u.Local, o.Local)}
}

// times returns u * n / d. Products do not overflow on machines with 32 bits.
func (u Units) times(n, d int) Units {
	scale := func(v int) int { return int(int64(v) * int64(n) / int64(d)) }
	return Units{scale(u.Frontends), scale(u.Backends), scale(u.Addresses), scale(u.Local)}
}

func (u Units) within(limit Units) bool {
	return u.Frontends <= limit.Frontends && u.Backends <= limit.Backends && u.Addresses <= limit.Addresses && u.Local <= limit.Local
}

// text lists the numbers of u whose numbers in of are not 0.
func (u Units) text(of Units) string {
	var out []string
	for _, n := range []struct {
		number, of int
		what       string
	}{
		{u.Frontends, of.Frontends, "front ends"},
		{u.Backends, of.Backends, "backends"},
		{u.Addresses, of.Addresses, "external addresses"},
		{u.Local, of.Local, "front ends of policy Local"},
	} {
		if n.of != 0 {
			out = append(out, fmt.Sprintf("%d %s", n.number, n.what))
		}
	}
	return strings.Join(out, ", ")
}

// String returns the numbers that are not 0.
func (u Units) String() string { return u.text(u) }

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
	return u
}

// Units returns what the pod's host ports ask of its node's tables.
func (p *Pod) Units(cfg Config) Units {
	var u Units
	for _, port := range p.Ports {
		for _, is4 := range []bool{true, false} {
			if cfg.hasFamily(is4) && (port.Everywhere(is4) || port.At.Is4() == is4 && !port.At.IsUnspecified()) {
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
	Namespace int // front ends of the Services of a namespace; the share of other tables is the same
	Tables    int // percent of a node's tables for Services; the rest is for pods' host ports
}

// Validate returns an error for numbers that make no budget.
func (s Shares) Validate() error {
	var errs []error
	if s.Namespace < 0 {
		errs = append(errs, fmt.Errorf("front ends of a namespace: %d is negative", s.Namespace))
	}
	if s.Tables < 0 || s.Tables > 95 {
		errs = append(errs, fmt.Errorf("share of Services in the tables: %d is not 1 to 95 percent", s.Tables))
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
	return Budget{
		Namespace: TableUnits().times(s.Namespace, TableUnits().Frontends), Total: total, Reserve: total.times(1, 10),
		settings: [2]string{"--namespace-frontends", "--service-table-share"},
	}
}

// HostPorts returns the budget of the pods with host ports on one node.
func (s Shares) HostPorts() Budget {
	total := TableUnits().minus(s.Services().Total)
	return Budget{Namespace: total.times(1, 4), Total: total, Reserve: total.times(1, 10), settings: [2]string{"--service-table-share", "--service-table-share"}}
}

// Accounts decides which Services, and which pods with host ports of each node, are served within
// their budgets. Its methods must not be called concurrently.
type Accounts struct {
	shares   Shares
	services *Ledger
	pods     map[string]*Ledger // by node
	nodes    map[Key]string     // of the pods
}

// NewAccounts returns empty Accounts.
func NewAccounts(shares Shares) *Accounts {
	return &Accounts{shares: shares, services: NewLedger(shares.Services()), pods: map[string]*Ledger{}, nodes: map[Key]string{}}
}

// Set records an object's meaning, which is empty for an object without frontends. It returns the
// keys of the objects that are served now and were not before, or the reverse, in any order.
func (a *Accounts) Set(k Key, m Meaning, cfg Config) []Key {
	if k.Kind == KindService {
		if m.Service == nil {
			return a.services.Delete(k)
		}
		return a.services.Set(m.Service.Owner, m.Units(cfg))
	}
	var changed []Key
	node, known := a.nodes[k]
	if known && (m.Pod == nil || m.Pod.Node != node) {
		l := a.pods[node]
		changed = l.Delete(k)
		delete(a.nodes, k)
		if l.Len() == 0 {
			delete(a.pods, node)
		}
	}
	if m.Pod == nil {
		return changed
	}
	l := a.pods[m.Pod.Node]
	if l == nil {
		l = NewLedger(a.shares.HostPorts())
		a.pods[m.Pod.Node] = l
	}
	a.nodes[k] = m.Pod.Node
	return append(changed, l.Set(m.Pod.Owner, m.Units(cfg))...)
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
