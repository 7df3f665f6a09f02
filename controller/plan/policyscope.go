package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// A new pod takes OVN 1 to 3 ms for each port group that it joins, and the policies of any
// namespace can select it. So these bounds limit the groups that the policies of one namespace can
// put pods into (docs/networkpolicy.md). Each port group counts as if all pods of the namespaces
// that it selects from were its members. So the counts depend on selectors, labels of namespaces
// and numbers of pods only, not on labels of pods, which change often.
const (
	// maxForeignGroups bounds the port groups of a namespace's policies that select from any one other
	// namespace.
	maxForeignGroups = 128
	// maxOwnGroups bounds those that select from the namespace itself.
	maxOwnGroups = 1024
	// maxMemberships bounds the sum of the members of all these groups, because the controller and OVN
	// keep all of them in memory.
	maxMemberships = 1 << 20
	// minCountedPods is the lowest number of pods that a namespace counts as (countedPods).
	minCountedPods = 16
)

// scopes holds the scopes of all selectors in budgets. Selectors with the same scope share it.
// Namespaces have numbers here, so that counting them is cheap. A number is never reused.
type scopes struct {
	numbers    map[string]int    // of namespaces, from 0
	pods       []int             // countedPods of each namespace, by its number
	bySelector map[string]*scope // by selector.where
}

// scope is the set of namespaces from which a selector selects pods.
type scope struct {
	text       string                // selector.where
	selector   *metav1.LabelSelector // of namespaces; nil: it is one namespace by its name
	namespaces []int                 // numbers of the namespaces, sorted
	pods       int                   // sum of countedPods of the namespaces
	users      int                   // calls of use without a release
}

// use returns the scope of a selector, and keeps it up to date until the caller releases it.
func (ss *scopes) use(c *Cluster, s selector) *scope {
	text := s.where()

	found := ss.bySelector[text]
	if found == nil {
		found = &scope{text: text, selector: s.namespaces}

		if s.namespaces == nil {
			found.add(ss, ss.number(c, s.namespace))
		} else {
			for ns := range Objects[corev1.Namespace](c, KindNamespace) {
				if selects(s.namespaces, ns.Labels) {
					found.add(ss, ss.number(c, ns.Name))
				}
			}
		}

		if ss.bySelector == nil {
			ss.bySelector = map[string]*scope{}
		}

		ss.bySelector[text] = found
	}

	found.users++

	return found
}

// release ends the use of the scopes. It drops those that have no other users.
func (ss *scopes) release(used []*scope) {
	for _, s := range used {
		if s.users--; s.users == 0 {
			delete(ss.bySelector, s.text)
		}
	}
}

// add adds a namespace that is not in the scope.
func (s *scope) add(ss *scopes, number int) {
	i, _ := slices.BinarySearch(s.namespaces, number)
	s.namespaces = slices.Insert(s.namespaces, i, number)
	s.pods += ss.pods[number]
}

// number returns the number of a namespace, which may be a new one.
func (ss *scopes) number(c *Cluster, namespace string) int {
	n, known := ss.numbers[namespace]
	if !known {
		if ss.numbers == nil {
			ss.numbers = map[string]int{}
		}

		n = len(ss.pods)
		ss.numbers[namespace] = n
		ss.pods = append(ss.pods, countedPods(c, namespace))
	}

	return n
}

// countedPods returns how many pods a namespace counts as: its pods, rounded up to a power of two
// and at least minCountedPods, so that the number seldom changes.
func countedPods(c *Cluster, namespace string) int {
	pods, err := c.Stores[KindPod].ByIndex(ByNamespace, namespace)
	if err != nil {
		panic(err) // a store without its index is a programming error
	}

	return max(minCountedPods, services.RoundUp(len(pods)))
}

// rereadPods reads the number of a namespace's pods again, and reports whether a scope has changed.
func (ss *scopes) rereadPods(c *Cluster, namespace string) bool {
	number, known := ss.numbers[namespace]
	if !known {
		return false
	}

	difference := countedPods(c, namespace) - ss.pods[number]
	if difference == 0 {
		return false
	}

	ss.pods[number] += difference
	changed := false

	for _, s := range ss.bySelector {
		if _, has := slices.BinarySearch(s.namespaces, number); has {
			s.pods += difference
			changed = true
		}
	}

	return changed
}

// rereadLabels reads a namespace's labels again, and reports whether a scope has changed. The
// namespace may have been deleted.
func (ss *scopes) rereadLabels(c *Cluster, namespace string) bool {
	ns, changed := c.Namespace(namespace), false

	for _, s := range ss.bySelector {
		if s.selector == nil {
			continue
		}

		number, known := ss.numbers[namespace]
		at, had := slices.BinarySearch(s.namespaces, number)
		had = had && known

		switch has := ns != nil && selects(s.selector, ns.Labels); {
		case has && !had:
			s.add(ss, ss.number(c, namespace))
		case had && !has:
			s.namespaces = slices.Delete(s.namespaces, at, at+1)
			s.pods -= ss.pods[number]
		default:
			continue
		}

		changed = true
	}

	return changed
}

// scopedGroup is a port group to which rules of a policy refer.
type scopedGroup struct {
	key   string // usedGroup.key
	scope *scope // of the group's selector
}

// memberships counts the port groups of the policies of one namespace, and their members.
type memberships struct {
	own    int                 // number of the policies' namespace, -1 if it has none
	groups map[string]struct{} // keys of the counted groups
	counts []int               // by number of a namespace: the counted groups that select from it
	total  int                 // sum of the counted groups' members
}

// newMemberships returns memberships without groups, for the policies of the namespace.
func (ss *scopes) newMemberships(namespace string) *memberships {
	own, known := ss.numbers[namespace]
	if !known {
		own = -1
	}

	return &memberships{own: own, groups: map[string]struct{}{}, counts: make([]int, len(ss.pods))}
}

// take counts the groups, and returns directionServed. If they exceed a bound, or if there are more
// than most groups then, it counts none of them, and returns why. Groups that have been counted are
// not counted again.
func (m *memberships) take(groups []scopedGroup, most int) directionState {
	var taken []scopedGroup

	for _, g := range groups {
		if _, has := m.groups[g.key]; has {
			continue
		}

		m.groups[g.key] = struct{}{}
		taken = append(taken, g)

		if !m.count(g.scope) {
			m.uncount(taken)
			return exceedsMembershipLimits
		}
	}

	if len(m.groups) > most {
		m.uncount(taken)
		return exceedsShare
	}

	return directionServed
}

// count counts one group, and reports whether all bounds hold.
func (m *memberships) count(s *scope) bool {
	m.total += s.pods
	fits := m.total <= maxMemberships

	for _, n := range s.namespaces {
		limit := maxForeignGroups
		if n == m.own {
			limit = maxOwnGroups
		}

		m.counts[n]++
		fits = fits && m.counts[n] <= limit
	}

	return fits
}

// uncount undoes the counting of the groups.
func (m *memberships) uncount(groups []scopedGroup) {
	for _, g := range groups {
		delete(m.groups, g.key)

		m.total -= g.scope.pods
		for _, n := range g.scope.namespaces {
			m.counts[n]--
		}
	}
}
