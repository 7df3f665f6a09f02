package plan

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// accounting decides which Services and pods with host ports are served within their budgets. It is
// built from the stores when it is first used. Afterwards Affected keeps it up to date, and names
// the owners that a change lets in or out.
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
	c.accounting.mu.Lock()
	c.accounts().Set(k, c.meaning(k), c.Config.services())
	changed := c.accounts().Settle()
	c.accounting.mu.Unlock()

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

// accounts returns the accounts of the cluster. The caller must hold the lock.
func (c *Cluster) accounts() *services.Accounts {
	if c.accounting.accounts != nil {
		return c.accounting.accounts
	}

	a := services.NewAccounts(c.Config.Shares)
	take := func(k services.Key) { a.Set(k, c.meaning(k), c.Config.services()) }

	for svc := range Objects[corev1.Service](c, KindService) {
		take(services.OwnerOfService(svc).Key)
	}

	for pod := range Objects[corev1.Pod](c, KindPod) {
		if services.HasHostPorts(pod) {
			take(services.OwnerOfPod(pod).Key)
		}
	}

	a.Settle()

	c.accounting.accounts = a

	return a
}

// meaning returns the meaning of an object as it is in the store.
func (c *Cluster) meaning(k services.Key) services.Meaning {
	if k.Kind == services.KindPod {
		return services.Meaning{Pod: services.NewPod(c.Pod(k.Namespace, k.Name), nil)}
	}

	svc := c.Service(k.Namespace, k.Name)
	if svc == nil {
		return services.Meaning{}
	}

	return services.Meaning{Service: services.New(c.Config.services(), svc, c.slices(svc))}
}
