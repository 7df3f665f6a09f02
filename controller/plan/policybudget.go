package plan

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// budgets divides the flows of each namespace among its policies, the oldest first. A direction of
// a policy is closed if it does not fit in what the older ones leave. It then allows nothing and
// uses no flows. A change of one policy updates its namespace's budget, which is not computed anew,
// because a namespace may have thousands of policies.
//
// A budget is a function of the stores only. But a change of one policy may open or close others.
// So the budget notes for each policy which directions were closed in its last plan, and addChanged
// adds the policies for which that differs now. A comparison of the objects before and after one
// change would not be enough: the stores may be several changes ahead, and none of them alone may
// make the difference.
type budgets struct {
	mu          sync.Mutex         // guards byNamespace and what it refers to
	byNamespace map[string]*budget // only those that have been used
}

// budget has the policies of a namespace, the oldest first.
type budget struct {
	policies    []*budgetMember
	byName      map[string]*budgetMember
	isRedivided bool // states may differ from those of the last plans, which have not been compared yet
}

// budgetMember is a policy with its part of the budget.
type budgetMember struct {
	policy *networkingv1.NetworkPolicy
	cost   policyCost
	flows  perSide[int] // of cost
	states perSide[directionState]

	isPlanned     bool
	plannedStates perSide[directionState] // as of its last plan, if it has been planned
}

// directionState is the decision about a direction of a policy: it is served, or it is closed
// because it exceeds a bound.
type directionState uint8

const (
	directionServed       directionState = iota
	exceedsDirectionLimit                // the direction itself exceeds maxDirectionFlows
	exceedsNamespaceLimit                // older policies leave too few of maxNamespaceFlows
)

// olderFirst orders policies. The names decide only between objects that have no UIDs.
func olderFirst(a, b *budgetMember) int {
	return cmp.Or(a.policy.CreationTimestamp.Compare(b.policy.CreationTimestamp.Time),
		cmp.Compare(a.policy.UID, b.policy.UID), cmp.Compare(a.policy.Name, b.policy.Name))
}

// plan returns the policy, its flows and the states of its directions, and notes that the policy is
// planned with these. The policy is nil if it does not exist.
func (bs *budgets) plan(
	c *Cluster,
	key Key,
) (p *networkingv1.NetworkPolicy, flows perSide[int], states perSide[directionState]) {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	b := bs.budgetOf(c, key.Namespace)
	b.refresh(c, key)

	m := b.byName[key.Name]
	if m == nil {
		bs.dropEmptyBudget(key.Namespace)
		return nil, flows, states
	}

	m.plannedStates, m.isPlanned = m.states, true

	return m.policy, m.flows, m.states
}

// addChanged adds the policies that are opened or closed because the given policies, or the numbers
// of their named ports, have changed. It adds no policy that has not been planned yet, because its
// first plan will use the current states.
func (bs *budgets) addChanged(c *Cluster, keys, policies keySet) {
	bs.updateBudgets(c, keys, policies, func(b *budget, k Key) { b.refresh(c, k) })
}

// addPodChanged does the same as addChanged for policies that name ports of a pod which has
// changed.
func (bs *budgets) addPodChanged(c *Cluster, keys, policies keySet, pod *corev1.Pod) {
	bs.updateBudgets(c, keys, policies, func(b *budget, k Key) {
		m := b.byName[k.Name]
		if m == nil || m.policy != get[networkingv1.NetworkPolicy](c, k) {
			b.refresh(c, k)
			return
		}

		m.cost.updateNumbers(c, pod)
		b.updateFlows(m)
	})
}

// updateBudgets calls update for each of the policies and its namespace's budget. Then it adds the
// policies with states that differ from those of their last plans.
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
		if b.isRedivided {
			b.isRedivided = false

			for _, m := range b.policies {
				if m.isPlanned && m.plannedStates != m.states {
					keys.add(PolicyKey(namespace, m.policy.Name))
				}
			}
		}

		bs.dropEmptyBudget(namespace)
	}
}

// dropEmptyBudget drops the budget of a namespace without policies.
func (bs *budgets) dropEmptyBudget(namespace string) {
	if len(bs.byNamespace[namespace].policies) == 0 {
		delete(bs.byNamespace, namespace)
	}
}

// forget drops all budgets. The next plan computes them anew from the stores.
func (bs *budgets) forget() {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	bs.byNamespace = nil
}

// budgetOf returns the namespace's budget. The caller must hold the lock.
func (bs *budgets) budgetOf(c *Cluster, namespace string) *budget {
	if b := bs.byNamespace[namespace]; b != nil {
		return b
	}

	b := &budget{byName: map[string]*budgetMember{}, isRedivided: true}

	// The index also has policies of other namespaces with peers in this one.
	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, ByPods, inNamespace(namespace)) {
		if p.Namespace == namespace {
			b.byName[p.Name] = newBudgetMember(c, p)
			b.policies = append(b.policies, b.byName[p.Name])
		}
	}

	slices.SortFunc(b.policies, olderFirst)
	b.divide()

	if bs.byNamespace == nil {
		bs.byNamespace = map[string]*budget{}
	}

	bs.byNamespace[namespace] = b

	return b
}

func newBudgetMember(c *Cluster, p *networkingv1.NetworkPolicy) *budgetMember {
	m := &budgetMember{policy: p, cost: costOf(p)}
	m.cost.readNumbers(c)
	m.flows = m.cost.flows()

	return m
}

// refresh reads the policy and the numbers of its named ports again. It adds or removes a policy
// that was created or deleted.
func (b *budget) refresh(c *Cluster, key Key) {
	p, before := get[networkingv1.NetworkPolicy](c, key), b.byName[key.Name]
	if before != nil && before.policy == p {
		before.cost.readNumbers(c)
		b.updateFlows(before)

		return
	}

	if before != nil {
		if i, ok := slices.BinarySearchFunc(b.policies, before, olderFirst); ok {
			b.policies = slices.Delete(b.policies, i, i+1)
		}

		delete(b.byName, key.Name)
	}

	if p != nil {
		after := newBudgetMember(c, p)
		if before != nil {
			after.plannedStates, after.isPlanned = before.plannedStates, before.isPlanned
		}

		i, _ := slices.BinarySearchFunc(b.policies, after, olderFirst)
		b.policies = slices.Insert(b.policies, i, after)
		b.byName[key.Name] = after
	}

	if before != nil || p != nil {
		b.divide()
	}
}

// updateFlows divides the budget again if the member's cost has changed.
func (b *budget) updateFlows(m *budgetMember) {
	if flows := m.cost.flows(); flows != m.flows {
		m.flows = flows

		b.divide()
	}
}

// divide sets the states of all members.
func (b *budget) divide() {
	b.isRedivided = true
	left := maxNamespaceFlows

	for _, m := range b.policies {
		for side, n := range m.flows {
			switch {
			case n > maxDirectionFlows:
				m.states[side] = exceedsDirectionLimit
			case n > left:
				m.states[side] = exceedsNamespaceLimit
			default:
				m.states[side] = directionServed
				left -= n
			}
		}
	}
}
