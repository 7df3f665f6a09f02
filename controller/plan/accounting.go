package plan

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// accounting decides which Services and pods with host ports are served within the budgets that
// they share (services.Accounts, settings in Config.Shares). It is built from the stores when it is
// first used. Afterwards Affected keeps it up to date, and returns the owners that a change lets
// into a budget or out of it.
type accounting struct {
	mu       sync.Mutex         // guards accounts
	accounts *services.Accounts // nil: not built
}

// ForgetAccounts makes the next call of Rows or Affected read all Services and pods again. It must
// be called if objects have changed without a call of Affected, before any owner is planned.
func (c *Cluster) ForgetAccounts() {
	c.accounting.mu.Lock()
	defer c.accounting.mu.Unlock()

	c.accounting.accounts = nil
}

// refused returns the reason why an object is beyond a budget, or nil.
func (c *Cluster) refused(k services.Key) error {
	c.accounting.mu.Lock()
	defer c.accounting.mu.Unlock()

	return c.accounts().Refused(k)
}

// updateAccounts takes the current version of an object into account. It adds the owners whose rows
// change because a budget lets them in or out.
func (c *Cluster) updateAccounts(keys keySet, k services.Key) {
	c.changeAccounts(keys, func(a *services.Accounts) { a.Set(k, c.meaning(k), c.Config.services()) })
}

// addAccountedNodes takes the current number of nodes into account. It adds the owners whose rows
// change because a budget lets them in or out.
func (c *Cluster) addAccountedNodes(keys keySet) {
	c.changeAccounts(keys, func(a *services.Accounts) { a.SetNodes(countedNodes(c)) })
}

// changeAccounts changes the accounts. It adds the owners that a budget lets in or out because of
// that, and those that claim their frontends.
func (c *Cluster) changeAccounts(keys keySet, change func(*services.Accounts)) {
	c.accounting.mu.Lock()
	change(c.accounts())
	changed := c.accounts().Settle()
	c.accounting.mu.Unlock()

	// The frontends of these owners may move to other owners or come from them.
	for _, k := range changed {
		if k.Kind == services.KindPod {
			keys.add(PodKey(k.Namespace, k.Name))

			if pod := c.Pod(k.Namespace, k.Name); pod != nil {
				c.addPodConflicts(keys, pod)
			}

			continue
		}

		keys.add(ServiceKey(k.Namespace, k.Name))

		if svc := c.Service(k.Namespace, k.Name); svc != nil {
			c.addServiceConflicts(keys, svc)
		}
	}
}

// accounts returns the accounts of the cluster, and builds them if needed. The caller must hold the
// lock.
func (c *Cluster) accounts() *services.Accounts {
	if c.accounting.accounts != nil {
		return c.accounting.accounts
	}

	accounts := services.NewAccounts(c.Config.Shares)
	accounts.SetNodes(countedNodes(c))

	set := func(k services.Key) { accounts.Set(k, c.meaning(k), c.Config.services()) }

	for svc := range Objects[corev1.Service](c, KindService) {
		set(services.OwnerOfService(svc).Key)
	}

	for pod := range Objects[corev1.Pod](c, KindPod) {
		if services.HasHostPorts(pod) {
			set(services.OwnerOfPod(pod).Key)
		}
	}

	accounts.Settle()

	c.accounting.accounts = accounts

	return accounts
}

// meaning returns what the object in the store asks for, as package service interprets it. It is
// empty if the object does not exist.
func (c *Cluster) meaning(k services.Key) services.Meaning {
	if k.Kind == services.KindPod {
		return services.Meaning{Pod: services.NewPod(c.Pod(k.Namespace, k.Name), nil)}
	}

	svc := c.Service(k.Namespace, k.Name)
	if svc == nil {
		return services.Meaning{}
	}

	return services.Meaning{Service: services.New(c.Config.services(), svc, c.slicesOf(svc))}
}
