package service

import (
	"maps"
	"slices"
)

// Accounts decides which Services, and which pods with host ports of each node, are served within
// their budgets. It has one Ledger for the Services of the cluster, and one for the pods of each
// node, because a pod's host ports are in the tables of its node only. Its methods must not be
// called concurrently.
type Accounts struct {
	shares   Shares
	services *Ledger
	pods     map[string]*Ledger // by node
	nodeOf   map[Key]string     // the node of each pod in pods
	changed  map[string]bool    // nodes whose pods have changed since the last Settle
}

// NewAccounts returns empty Accounts for a small cluster.
func NewAccounts(shares Shares) *Accounts {
	return &Accounts{
		shares:   shares,
		services: NewLedger(shares.Services(0)),
		pods:     map[string]*Ledger{},
		nodeOf:   map[Key]string{},
		changed:  map[string]bool{},
	}
}

// Set records an object's meaning, which is empty for an object without frontends. Settle must be
// called before Refused.
func (a *Accounts) Set(k Key, m Meaning, cfg Config) {
	switch {
	case k.Kind == KindPod:
		a.setPod(k, m.Pod, cfg)
	case m.Service == nil:
		a.services.Delete(k)
	default:
		a.services.Set(m.Service.Owner, m.Service.Units())
	}
}

// setPod records the meaning of a pod, in the ledger of its node.
func (a *Accounts) setPod(k Key, p *Pod, cfg Config) {
	node, known := a.nodeOf[k]
	if known && (p == nil || p.Node != node) {
		a.pods[node].Delete(k)
		delete(a.nodeOf, k)

		a.changed[node] = true
	}

	if p == nil {
		return
	}

	ledger := a.pods[p.Node]
	if ledger == nil {
		ledger = NewLedger(a.shares.HostPorts())
		a.pods[p.Node] = ledger
	}

	ledger.Set(p.Owner, p.Units(cfg))

	a.nodeOf[k] = p.Node
	a.changed[p.Node] = true
}

// SetNodes records the number of the cluster's nodes, on which the total of Services depends.
// Settle must be called before Refused.
func (a *Accounts) SetNodes(n int) { a.services.SetTotal(a.shares.Services(n)) }

// Settle decides which objects are served. It returns the keys of those whose verdict has
// changed, as Ledger.Settle does, in any order.
func (a *Accounts) Settle() []Key {
	out := a.services.Settle()

	for node := range a.changed {
		ledger := a.pods[node]
		out = append(out, ledger.Settle()...)

		if ledger.Len() == 0 {
			delete(a.pods, node)
		}
	}

	clear(a.changed)

	return out
}

// Keys returns the keys of all objects, in any order.
func (a *Accounts) Keys() []Key {
	return slices.AppendSeq(slices.Collect(maps.Keys(a.services.entries)), maps.Keys(a.nodeOf))
}

// Refused returns the reason why an object is not served, or nil.
func (a *Accounts) Refused(k Key) error {
	if k.Kind == KindService {
		return a.services.Refused(k)
	}

	if ledger := a.pods[a.nodeOf[k]]; ledger != nil {
		return ledger.Refused(k)
	}

	return nil
}
