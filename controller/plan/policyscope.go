package plan

import (
	"math/bits"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The work of a new pod grows with the number of port groups that it is a member of: each costs OVN
// 1 to 3 ms. The policies of other namespaces must not delay it, so they can put a pod into only so
// many groups. The bounds depend on selectors, labels of namespaces and numbers of pods only, not on
// labels of pods, because these change often.
const (
	// maxForeignGroups bounds the port groups of a namespace's policies that may have pods of any one
	// other namespace.
	maxForeignGroups = 128
	// maxOwnGroups bounds those that may have pods of the namespace itself.
	maxOwnGroups = 1024
	// maxMemberships bounds the sum over all groups of the pods of the namespaces that the group
	// selects from, because the controller and OVN keep all members of all groups in memory.
	maxMemberships = 1 << 20
	// minCountedPods is the smallest number of pods that a namespace counts as. The number is rounded
	// up to a power of two, so that it seldom changes.
	minCountedPods = 16
)

// scopes holds the namespaces from which selectors select, as long as a budget has such a selector.
// Namespaces have numbers here, so that counting them is cheap.
type scopes struct {
	numbers    map[string]int    // of namespaces
	pods       []int             // what each namespace counts as, by its number
	bySelector map[string]*scope // by selector.where
}

// scope has the namespaces from which a selector selects pods.
type scope struct {
	text       string                // selector.where
	selector   *metav1.LabelSelector // of namespaces; nil: it is one namespace by its name
	namespaces []int                 // numbers of the selected ones, sorted
	pods       int                   // what all of these count as
	users      int                   // selectors of budgets that have this scope
}

// use returns the scope of a selector. The caller must release it.
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

// release drops the scopes that have no other users.
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

// number returns the number of a namespace.
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

// countedPods returns what the pods of a namespace count as.
func countedPods(c *Cluster, namespace string) int {
	pods, err := c.Stores[KindPod].ByIndex(ByNamespace, namespace)
	if err != nil {
		panic(err) // a store without its index is a programming error
	}

	if len(pods) <= minCountedPods {
		return minCountedPods
	}

	return 1 << bits.Len(uint(len(pods)-1))
}

// countPods reads the number of a namespace's pods again, and reports whether a scope has changed.
func (ss *scopes) countPods(c *Cluster, namespace string) bool {
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

// readNamespace reads a namespace's labels again, and reports whether a scope has changed.
func (ss *scopes) readNamespace(c *Cluster, namespace string) bool {
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

// scopedGroup is a port group of a policy.
type scopedGroup struct {
	key   string // equal for the same group
	scope *scope
}

// memberships counts the memberships that the policies of a namespace may cause.
type memberships struct {
	own    int // number of the policies' namespace, -1 if it has none
	groups map[string]struct{}
	counts []int // groups by the number of a namespace that may have members
	total  int
}

func (ss *scopes) newMemberships(namespace string) *memberships {
	own, known := ss.numbers[namespace]
	if !known {
		own = -1
	}

	return &memberships{own: own, groups: map[string]struct{}{}, counts: make([]int, len(ss.pods))}
}

// take counts the groups, unless a bound would be exceeded then. Groups that have been counted are
// not counted again.
func (m *memberships) take(groups []scopedGroup) bool {
	var taken []scopedGroup

	for _, g := range groups {
		if _, has := m.groups[g.key]; has {
			continue
		}

		m.groups[g.key] = struct{}{}
		taken = append(taken, g)

		if !m.count(g.scope) {
			m.giveBack(taken)
			return false
		}
	}

	return true
}

// count counts one group, and reports whether all bounds hold.
func (m *memberships) count(s *scope) bool {
	m.total += s.pods
	fits := m.total <= maxMemberships

	for _, n := range s.namespaces {
		m.counts[n]++

		if m.counts[n] > maxForeignGroups && n != m.own || m.counts[n] > maxOwnGroups {
			fits = false
		}
	}

	return fits
}

// giveBack undoes the counting of groups that take has counted.
func (m *memberships) giveBack(groups []scopedGroup) {
	for _, g := range groups {
		delete(m.groups, g.key)

		m.total -= g.scope.pods
		for _, n := range g.scope.namespaces {
			m.counts[n]--
		}
	}
}
