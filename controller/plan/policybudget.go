package plan

import (
	"cmp"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// budgets decides which directions (ingress, egress) of policies are served, so that the policies
// of one namespace stay within its bounds on flows (policycost.go) and on memberships of pods in
// port groups (policyscope.go), and within its share of what all namespaces have (policyshare.go).
// The policies get their parts in the order of their age. A direction that does not fit in what the
// older ones leave is closed: it allows nothing and uses nothing, and its rules have no port
// groups. The same applies to a policy that selects no pod, which needs nothing.
//
// Affected calls an add method for each change of an object. It works in three steps:
//  1. Update the budgets with the new version of the object. They are not computed anew, because a
//     namespace may have thousands of policies.
//  2. Decide the states of all directions of these budgets again (divide), and those of all budgets
//     that exceed their share if the shares have changed.
//  3. Add the owners that depend on states which have changed (announce). A change of one policy
//     may open or close others.
//
// To find such states, each member counts its changes, and announce compares with the count of its
// last call. A comparison of the objects before and after one change would not be enough: the
// stores may be several changes ahead, and none of them alone may make the difference.
//
// A budget is a function of the stores, with one exception: a policy that has lost its last pod
// keeps its part until the next full sync (forget). Otherwise, a namespace could add and remove
// thousands of memberships by creating and deleting a single pod.
type budgets struct {
	mu          sync.Mutex         // guards all fields and what they refer to
	byNamespace map[string]*budget // of the namespaces with policies; nil: none has been read
	scopes      scopes             // of the selectors of the budgets' policies
	shares      policyShares
	share       policyUse            // of each namespace, with which the states were decided
	changed     map[*budget]struct{} // those with changes that announce has yet to see
}

// budget has the policies of a namespace.
type budget struct {
	namespace string
	policies  []*budgetMember // the oldest first
	byName    map[string]*budgetMember
	request   policyUse // what the policies would use without a share
}

// budgetMember is a policy with its part of the budget.
type budgetMember struct {
	policy  *networkingv1.NetworkPolicy
	usage   *cachedUsage
	scopes  []*scope // of usage.groups, in the same order
	cost    policyCost
	flows   perSide[int] // of cost, also while a direction is closed
	hasPods bool         // a pod has been selected since the last full sync
	states  perSide[directionState]

	changes          int // how often divide has changed the states
	announcedChanges int // the value of changes at the last call of announce
}

// directionState is the decision about a direction of a policy: it is served, or it is closed
// because it selects no pod or exceeds a bound.
type directionState uint8

const (
	directionIdle           directionState = iota // nothing to serve: the policy selects no pod
	directionServed                               // within all bounds
	exceedsDirectionLimit                         // the direction itself exceeds maxDirectionFlows
	exceedsNamespaceLimit                         // older policies leave too few of maxNamespaceFlows
	exceedsMembershipLimits                       // older policies leave too few memberships (policyscope.go)
	exceedsShare                                  // older policies leave too little of the share (policyshare.go)
)

// olderFirst orders policies by age, then by UID. The names decide only between objects that have
// no UIDs.
func olderFirst(a, b *budgetMember) int {
	return cmp.Or(a.policy.CreationTimestamp.Compare(b.policy.CreationTimestamp.Time),
		cmp.Compare(a.policy.UID, b.policy.UID), cmp.Compare(a.policy.Name, b.policy.Name))
}

// plan returns what the rows of a policy depend on: the policy, its flows and the states of its
// directions. The policy is nil if it does not exist.
func (bs *budgets) plan(
	c *Cluster,
	key Key,
) (p *networkingv1.NetworkPolicy, flows perSide[int], states perSide[directionState]) {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	b := bs.budgetOf(c, key.Namespace)
	bs.refresh(c, b, key)

	m := b.byName[key.Name]
	if m == nil {
		bs.dropEmptyBudget(key.Namespace)
		return nil, flows, states
	}

	return m.policy, m.flows, m.states
}

// served reports which directions of the policy are served.
func (bs *budgets) served(c *Cluster, p *networkingv1.NetworkPolicy) perSide[bool] {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	m := bs.budgetOf(c, p.Namespace).byName[p.Name]
	if m == nil { // the policy is new, and addPolicyChange will follow
		return perSide[bool]{}
	}

	return m.served()
}

func (m *budgetMember) served() perSide[bool] {
	return perSide[bool]{m.states[ingressSide] == directionServed, m.states[egressSide] == directionServed}
}

// addPolicyChange adds the owners whose rows depend on a policy that has changed from the version
// before, which may be nil, or on policies that are opened or closed because of that.
func (bs *budgets) addPolicyChange(c *Cluster, keys keySet, key Key, before *networkingv1.NetworkPolicy) {
	former := c.usages.of(before)

	bs.update(c, keys, keySet{key: {}}, func(b *budget, k Key) {
		b.byName[k.Name].addFormerSelectors(keys, before, former)
		bs.refresh(c, b, k)

		m := b.byName[k.Name]
		if m == nil {
			return
		}

		for _, g := range m.usage.groups {
			if !g.existsWith(m.served()) {
				continue
			}

			if g.port == nil {
				keys.add(SelectorKey(g.key))
			}

			if !former.hasSame(g) {
				c.addPods(keys, g.selector)
			}
		}
	})
}

// isSameVersion reports whether b, which may be nil, is the policy a with the same spec. When a
// policy is deleted, an informer passes a copy of the object that was in the store.
func isSameVersion(a, b *networkingv1.NetworkPolicy) bool {
	return a == b || b != nil && a.UID == b.UID && reflect.DeepEqual(a.Spec, b.Spec)
}

// addFormerSelectors adds the selectors whose groups existed because of a former version of the
// policy. If the member, which may be nil, has another version, or states that are not announced
// yet, any group may have existed.
func (m *budgetMember) addFormerSelectors(keys keySet, before *networkingv1.NetworkPolicy, former *cachedUsage) {
	isKnown := m != nil && isSameVersion(m.policy, before) && m.changes == m.announcedChanges

	for _, g := range former.groups {
		if g.port == nil && (!isKnown || g.existsWith(m.served())) {
			keys.add(SelectorKey(g.key))
		}
	}
}

// addNumbersChange adds the owners whose rows depend on policies that are opened or closed because
// the numbers of the given policies' named ports may have changed.
func (bs *budgets) addNumbersChange(c *Cluster, keys, policies keySet) {
	bs.update(c, keys, policies, func(b *budget, k Key) { bs.refresh(c, b, k) })
}

// addPodNumbersChange does the same as addNumbersChange if only one pod has changed. The policies
// name ports of this version of the pod. It does not read the ports of all other pods.
func (bs *budgets) addPodNumbersChange(c *Cluster, keys, policies keySet, pod *corev1.Pod) {
	bs.update(c, keys, policies, func(b *budget, k Key) {
		m := b.byName[k.Name]
		if m == nil || m.policy != get[networkingv1.NetworkPolicy](c, k) {
			bs.refresh(c, b, k)
			return
		}

		m.cost.updateNumbers(c, pod)
		bs.updateFlows(b, m)
	})
}

// update calls change for each of the policies and its namespace's budget, and announces what
// differs then.
func (bs *budgets) update(c *Cluster, keys, policies keySet, change func(*budget, Key)) {
	if len(policies) == 0 {
		return
	}

	bs.mu.Lock()
	defer bs.mu.Unlock()

	for k := range policies {
		change(bs.budgetOf(c, k.Namespace), k)
	}

	bs.announceAll(c, keys)

	for k := range policies {
		bs.dropEmptyBudget(k.Namespace)
	}
}

// addFirstPod adds the owners whose rows depend on policies that had no pod and select this one.
func (bs *budgets) addFirstPod(c *Cluster, keys keySet, pod *corev1.Pod) {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	b := bs.byNamespace[pod.Namespace]
	if b == nil || !NeedsPort(pod) { // a new budget reads the pods
		return
	}

	isFirst := false // of any policy

	for _, m := range b.policies {
		if s := m.usage.subject(); !m.hasPods && s != nil && s.matches(pod, nil) {
			m.hasPods, isFirst = true, true
		}
	}

	if isFirst {
		bs.divide(b)
		bs.announceAll(c, keys)
	}
}

// addPodCountChange adds the owners whose rows depend on policies that are opened or closed because
// a pod of the namespace was created or deleted.
func (bs *budgets) addPodCountChange(c *Cluster, keys keySet, namespace string) {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	if bs.scopes.rereadPods(c, namespace) {
		bs.divideAll(c, keys)
	}
}

// addNamespaceChange adds the owners whose rows depend on policies that are opened or closed
// because a namespace was created or deleted, or has other labels.
func (bs *budgets) addNamespaceChange(c *Cluster, keys keySet, namespace string) {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	if bs.scopes.rereadLabels(c, namespace) {
		bs.divideAll(c, keys)
	}
}

// addNodeCountChange adds the owners whose rows depend on policies that are opened or closed
// because a node was created or deleted.
func (bs *budgets) addNodeCountChange(c *Cluster, keys keySet) {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	if bs.byNamespace == nil {
		return // the first budget reads the nodes
	}

	bs.shares.nodes = countedNodes(c)
	bs.applyShares()
	bs.announceAll(c, keys)
}

// divideAll divides all budgets again. Selectors of policies in any namespace may select from the
// namespace that has changed.
func (bs *budgets) divideAll(c *Cluster, keys keySet) {
	for _, b := range bs.byNamespace {
		bs.divide(b)
	}

	bs.announceAll(c, keys)
}

// announceAll calls announce for all budgets that have changed.
func (bs *budgets) announceAll(c *Cluster, keys keySet) {
	for b := range bs.changed {
		bs.announce(c, keys, b)
	}

	clear(bs.changed)
}

// announce adds the policies of a budget whose states have changed since the last call, their port
// groups, and the pods in those that exist now. The members of a group that is removed need not be
// added, because they are removed with it.
func (bs *budgets) announce(c *Cluster, keys keySet, b *budget) {
	for _, m := range b.policies {
		if m.changes == m.announcedChanges {
			continue
		}

		keys.add(PolicyKey(b.namespace, m.policy.Name))

		served := m.served()

		for _, g := range m.usage.groups {
			if g.isSubject {
				continue // it does not depend on the states
			}

			if g.port == nil { // the policy has the groups of named ports
				keys.add(SelectorKey(g.key))
			}

			if g.existsWith(served) && !bs.othersHaveGroup(c, m, g.key) {
				c.addPods(keys, g.selector)
			}
		}

		m.announcedChanges = m.changes
	}
}

// othersHaveGroup reports whether the port group exists because of other policies, too. Its pods
// are in it already then. Policies with changes that are not announced yet do not count.
func (bs *budgets) othersHaveGroup(c *Cluster, m *budgetMember, key string) bool {
	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, BySelector, key) {
		o := bs.budgetOf(c, p.Namespace).byName[p.Name]
		if o == nil || o == m || o.policy != p || o.changes != o.announcedChanges {
			continue
		}

		if i := o.usage.find(key); i >= 0 && o.usage.groups[i].existsWith(o.served()) {
			return true
		}
	}

	return false
}

// dropEmptyBudget drops the budget of a namespace without policies.
func (bs *budgets) dropEmptyBudget(namespace string) {
	if b := bs.byNamespace[namespace]; b != nil && len(b.policies) == 0 {
		delete(bs.byNamespace, namespace)
	}
}

// forget drops all budgets. The next plan computes them anew from the stores.
func (bs *budgets) forget() {
	bs.mu.Lock()
	defer bs.mu.Unlock()

	bs.byNamespace, bs.scopes, bs.changed = nil, scopes{}, nil
}

// budgetOf returns the namespace's budget. The first call computes the budgets of all namespaces
// from the stores, because their shares depend on each other. The caller must hold the lock.
func (bs *budgets) budgetOf(c *Cluster, namespace string) *budget {
	if bs.byNamespace == nil {
		bs.readAll(c)
	}

	b := bs.byNamespace[namespace]
	if b == nil {
		b = &budget{namespace: namespace, byName: map[string]*budgetMember{}}
		bs.byNamespace[namespace] = b
	}

	return b
}

// readAll computes all budgets from the stores.
func (bs *budgets) readAll(c *Cluster) {
	bs.byNamespace, bs.changed = map[string]*budget{}, map[*budget]struct{}{}
	bs.shares = policyShares{nodes: countedNodes(c)}
	bs.share = bs.shares.limit()

	for p := range Objects[networkingv1.NetworkPolicy](c, KindPolicy) {
		m, b := bs.newMember(c, p), bs.budgetOf(c, p.Namespace)
		b.byName[p.Name] = m
		b.policies = append(b.policies, m)
	}

	for _, b := range bs.byNamespace {
		slices.SortFunc(b.policies, olderFirst)
		bs.divide(b)
	}

	// There is nothing to announce: all plans use these states from the start.
	for b := range bs.changed {
		for _, m := range b.policies {
			m.announcedChanges = m.changes
		}
	}

	clear(bs.changed)
}

// newMember reads all that the state of a policy depends on. divide has yet to set the states.
func (bs *budgets) newMember(c *Cluster, p *networkingv1.NetworkPolicy) *budgetMember {
	m := &budgetMember{policy: p, usage: c.usages.of(p), cost: costOf(p)}
	m.cost.readNumbers(c)
	m.flows = m.cost.flows()

	for _, g := range m.usage.groups {
		m.scopes = append(m.scopes, bs.scopes.use(c, g.selector))
	}

	if s := m.usage.subject(); s != nil {
		m.hasPods = c.hasPods(s.selector)
	}

	return m
}

// hasPods reports whether a selector of pods in one namespace selects any.
func (c *Cluster) hasPods(s selector) bool {
	pods := index[corev1.Pod](c, KindPod, ByNamespace, s.namespace)
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return NeedsPort(p) && s.matches(p, nil) })
}

// refresh updates the budget with the policy in the store, and with the numbers of its named ports.
// It adds or removes a policy that was created or deleted.
func (bs *budgets) refresh(c *Cluster, b *budget, key Key) {
	p, before := get[networkingv1.NetworkPolicy](c, key), b.byName[key.Name]
	if before != nil && before.policy == p {
		before.cost.readNumbers(c)
		bs.updateFlows(b, before)

		return
	}

	if before != nil {
		if i, ok := slices.BinarySearchFunc(b.policies, before, olderFirst); ok {
			b.policies = slices.Delete(b.policies, i, i+1)
		}

		delete(b.byName, key.Name)
	}

	if p != nil {
		after := bs.newMember(c, p)
		if before != nil {
			after.inherit(before)
		}

		i, _ := slices.BinarySearchFunc(b.policies, after, olderFirst)
		b.policies = slices.Insert(b.policies, i, after)
		b.byName[key.Name] = after
	}

	if before != nil { // after newMember, which may use the same scopes
		bs.scopes.release(before.scopes)
	}

	if before != nil || p != nil {
		bs.divide(b)
	}
}

// inherit copies the decisions about a former version of the policy.
func (m *budgetMember) inherit(former *budgetMember) {
	m.states, m.changes, m.announcedChanges = former.states, former.changes, former.announcedChanges

	now, before := m.usage.subject(), former.usage.subject()
	if now != nil && before != nil && now.key == before.key {
		m.hasPods = m.hasPods || former.hasPods
	}
}

// updateFlows divides the budget again if the member's cost has changed.
func (bs *budgets) updateFlows(b *budget, m *budgetMember) {
	if flows := m.cost.flows(); flows != m.flows {
		m.flows = flows

		bs.divide(b)
	}
}

// divide sets the states of all members. If that changes the shares of all namespaces, it also sets
// those of other budgets.
func (bs *budgets) divide(b *budget) {
	states, request := bs.decide(b, noShare)

	bs.shares.add(b.request, -1)
	bs.shares.add(request, 1)
	b.request = request

	bs.applyShares()

	if request.exceeds(bs.share) {
		states, _ = bs.decide(b, bs.share)
	}

	bs.setStates(b, states)
}

// applyShares sets the states of the budgets that exceed the share, or have exceeded the former
// one, if it has changed.
func (bs *budgets) applyShares() {
	share, former := bs.shares.limit(), bs.share
	if share == former {
		return
	}

	bs.share = share

	for _, b := range bs.byNamespace {
		if b.request.exceeds(share) || b.request.exceeds(former) {
			states, _ := bs.decide(b, share)
			bs.setStates(b, states)
		}
	}
}

// setStates sets the states of the members, in the order of policies.
func (bs *budgets) setStates(b *budget, states []perSide[directionState]) {
	for i, m := range b.policies {
		if states[i] != m.states {
			m.states = states[i]
			m.changes++
			bs.changed[b] = struct{}{}
		}
	}
}

// decide returns the states of all members with a share, and the use of the directions that are
// served. Only these use up the bounds.
func (bs *budgets) decide(b *budget, share policyUse) (states []perSide[directionState], used policyUse) {
	states = make([]perSide[directionState], len(b.policies))
	memberships := bs.scopes.newMemberships(b.namespace)

	for i, m := range b.policies {
		for side, n := range m.flows {
			switch after := used.flows + n; {
			case !m.hasPods:
				states[i][side] = directionIdle
			case n > maxDirectionFlows:
				states[i][side] = exceedsDirectionLimit
			case after > maxNamespaceFlows:
				states[i][side] = exceedsNamespaceLimit
			case after > share.flows:
				states[i][side] = exceedsShare
			default:
				states[i][side] = memberships.take(m.scopedGroups(side), share.groups)
				if states[i][side] == directionServed {
					used.flows = after
				}
			}
		}
	}

	used.groups = len(memberships.groups)

	return states, used
}

// scopedGroups returns the port groups to which the rules of a side refer.
func (m *budgetMember) scopedGroups(side int) []scopedGroup {
	var out []scopedGroup

	for i, g := range m.usage.groups {
		if g.sides[side] {
			out = append(out, scopedGroup{g.key, m.scopes[i]})
		}
	}

	return out
}
