package plan

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// budgets divides the flows of each namespace among its policies, the oldest first: a direction
// that does not fit in what the older ones leave is closed and uses none. They are updated by the
// change of one policy, because a namespace may have thousands.
//
// A budget is a function of the stores only. But a change of one policy may open or close others.
// So the budget notes for each policy what its last plan was based on, and changed adds the
// policies for which that differs now. A comparison of the objects before and after one change
// would not be enough: the stores may be several changes ahead, and none of them alone may make the
// difference.
type budgets struct {
	mu    sync.Mutex         // guards known and what it refers to
	known map[string]*budget // by namespace
}

// budget has the policies of a namespace, the oldest first.
type budget struct {
	policies []*budgeted
	byName   map[string]*budgeted
	moved    bool // a cost or the order has changed since the plans were last compared
}

// budgeted is a policy with its place in the budget.
type budgeted struct {
	policy  *networkingv1.NetworkPolicy
	cost    policyCost
	flows   perSide[int]
	closed  perSide[closure]
	planned perSide[closure] // as of its last plan
	known   bool             // planned is valid
}

// closure is the decision about a direction: served, or the bound that it exceeds.
type closure uint8

const (
	directionServed       closure = iota
	exceedsDirectionLimit         // the direction itself exceeds maxDirectionFlows
	exceedsNamespaceLimit         // older policies leave too few of maxNamespaceFlows
)

// olderFirst orders policies. The names decide only between objects that have no UIDs.
func olderFirst(a, b *budgeted) int {
	return cmp.Or(a.policy.CreationTimestamp.Compare(b.policy.CreationTimestamp.Time),
		cmp.Compare(a.policy.UID, b.policy.UID), cmp.Compare(a.policy.Name, b.policy.Name))
}

// plan returns the policy, its flows, and which directions are closed, and notes these. The policy
// is nil if it does not exist.
func (bs *budgets) plan(
	c *Cluster,
	key Key,
) (p *networkingv1.NetworkPolicy, flows perSide[int], closed perSide[closure]) {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	b := bs.budgetOf(c, key.Namespace)
	b.refresh(c, key)

	e := b.byName[key.Name]
	if e == nil {
		bs.dropEmptyBudget(key.Namespace)
		return nil, flows, closed
	}

	e.planned, e.known = e.closed, true

	return e.policy, e.flows, e.closed
}

// changed adds the policies whose plans change because these have changed, or the numbers of their
// named ports. Policies that have not been planned yet will be.
func (bs *budgets) changed(c *Cluster, keys, policies keySet) {
	bs.updateBudgets(c, keys, policies, func(b *budget, k Key) { b.refresh(c, k) })
}

// podChanged does the same for policies that name ports of a pod.
func (bs *budgets) podChanged(c *Cluster, keys, policies keySet, pod *corev1.Pod) {
	bs.updateBudgets(c, keys, policies, func(b *budget, k Key) {
		e := b.byName[k.Name]
		if e == nil || e.policy != get[networkingv1.NetworkPolicy](c, k) {
			b.refresh(c, k)
			return
		}

		e.cost.recount(c, pod)
		b.update(e)
	})
}

func (bs *budgets) updateBudgets(c *Cluster, keys, policies keySet, update func(*budget, Key)) {
	if len(policies) == 0 {
		return
	}

	bs.mu.Lock()
	defer bs.mu.Unlock()

	namespaces := map[string]*budget{}

	for k := range policies {
		b := bs.budgetOf(c, k.Namespace)
		update(b, k)
		namespaces[k.Namespace] = b
	}

	for namespace, b := range namespaces {
		if b.moved {
			b.moved = false
			for _, e := range b.policies {
				if e.known && e.planned != e.closed {
					keys.add(PolicyKey(namespace, e.policy.Name))
				}
			}
		}

		bs.dropEmptyBudget(namespace)
	}
}

// dropEmptyBudget drops the budget of a namespace without policies.
func (bs *budgets) dropEmptyBudget(namespace string) {
	if len(bs.known[namespace].policies) == 0 {
		delete(bs.known, namespace)
	}
}

// forget drops all budgets. The next plan computes them anew from the stores.
func (bs *budgets) forget() {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	bs.known = nil
}

// budgetOf returns the namespace's budget.
func (bs *budgets) budgetOf(c *Cluster, namespace string) *budget {
	if b := bs.known[namespace]; b != nil {
		return b
	}

	b := &budget{byName: map[string]*budgeted{}, moved: true}

	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, ByPods, "in "+namespace) {
		if p.Namespace == namespace {
			b.byName[p.Name] = newBudgeted(c, p)
			b.policies = append(b.policies, b.byName[p.Name])
		}
	}

	slices.SortFunc(b.policies, olderFirst)
	b.divide()

	if bs.known == nil {
		bs.known = map[string]*budget{}
	}

	bs.known[namespace] = b

	return b
}

func newBudgeted(c *Cluster, p *networkingv1.NetworkPolicy) *budgeted {
	e := &budgeted{policy: p, cost: costOf(p)}
	e.cost.count(c)
	e.flows = e.cost.flows()

	return e
}

// refresh reads the policy and the numbers of its named ports again.
func (b *budget) refresh(c *Cluster, key Key) {
	p, was := get[networkingv1.NetworkPolicy](c, key), b.byName[key.Name]
	if was != nil && was.policy == p {
		was.cost.count(c)
		b.update(was)

		return
	}

	if was != nil {
		if i, ok := slices.BinarySearchFunc(b.policies, was, olderFirst); ok {
			b.policies = slices.Delete(b.policies, i, i+1)
		}

		delete(b.byName, key.Name)
	}

	if p != nil {
		is := newBudgeted(c, p)
		if was != nil {
			is.planned, is.known = was.planned, was.known
		}

		i, _ := slices.BinarySearchFunc(b.policies, is, olderFirst)
		b.policies = slices.Insert(b.policies, i, is)
		b.byName[key.Name] = is
	}

	if was != nil || p != nil {
		b.divide()
	}
}

// update divides the budget again if the policy's flows have changed.
func (b *budget) update(e *budgeted) {
	if flows := e.cost.flows(); flows != e.flows {
		e.flows = flows

		b.divide()
	}
}

// divide decides which directions are closed.
func (b *budget) divide() {
	b.moved = true
	left := maxNamespaceFlows

	for _, e := range b.policies {
		for side, n := range e.flows {
			switch {
			case n > maxDirectionFlows:
				e.closed[side] = exceedsDirectionLimit
			case n > left:
				e.closed[side] = exceedsNamespaceLimit
			default:
				e.closed[side] = directionServed
				left -= n
			}
		}
	}
}
