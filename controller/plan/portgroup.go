package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectorRows returns the port group of the pods that a selector selects. Policies with the same
// selector share it. It exists while these pods are the subject of a policy, or while the selector
// is in a rule of a direction that is served. If these pods are the subject of a policy, the rows
// include the ACLs that drop all connections that no policy allows.
func selectorRows(c *Cluster, key Key) ([]Row, error) {
	var (
		found                           *selector
		isolatesIngress, isolatesEgress bool // by any policy
	)

	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, BySelector, key.Name) {
		used := c.usages.of(p) // cached, because hashing the names of all groups again would be costly

		i := used.find(key.Name)
		if i < 0 || !used.groups[i].existsWith(c.budgets.served(c, p)) {
			continue
		}

		if found == nil {
			found = &used.groups[i].selector
		}

		if used.groups[i].isSubject {
			isolatesIngress = isolatesIngress || used.in
			isolatesEgress = isolatesEgress || used.out
		}
	}

	if found == nil {
		return nil, nil
	}

	rows := []Row{PortGroup{Name: key.Name, ExternalIDs: map[string]string{"pods": found.canonicalText()}}}
	logging, _ := c.aclLoggingOf(found.namespace) // the policies report the error

	for _, d := range []struct {
		direction
		isolated bool
	}{{ingress(), isolatesIngress}, {egress(), isolatesEgress}} {
		if d.isolated {
			// ARP is not IP, and OVN lets neighbour discovery pass before ACLs.
			rows = append(rows, ACL{
				Group:     key.Name,
				Rule:      "deny",
				Label:     aclLabel(found.namespace, d.name),
				Direction: d.aclDirection,
				Priority:  denyPriority,
				Match:     conjunction(d.self+" == @"+key.Name, "ip"),
				Action:    "drop",
				Options:   d.aclOptions,
			}.logged(logging.Deny))
		}
	}

	return rows, nil
}

// SelectorNamespace returns the first namespace, in alphabetical order, of the policies with a selector
// that has this port group. It returns "" if no policy has such a selector.
func (c *Cluster) SelectorNamespace(group string) string {
	first := ""

	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, BySelector, group) {
		if first == "" || p.Namespace < first {
			first = p.Namespace
		}
	}

	return first
}

// portGroups returns the names of the port groups of the pod's port, sorted, and those of them that
// only allow traffic. There may be thousands of policies, so only those that may select the pod are
// checked.
func (c *Cluster) portGroups(pod *corev1.Pod) (groups []string, access Access) {
	namespace := c.Namespace(pod.Namespace)
	isolating := map[string]bool{} // groups of policies' own pods, by name
	access = Access{}

	for _, p := range c.candidatePolicies(pod, namespace) {
		used, served := c.usages.of(p), c.budgets.served(c, p)
		for _, g := range used.groups {
			if !g.existsWith(served) || !g.matches(pod, namespace) {
				continue
			}

			for _, name := range g.names(pod) {
				access.add(name, p.Namespace)
			}

			if g.isSubject {
				isolating[g.key] = true
			}
		}
	}

	groups = slices.Sorted(maps.Keys(access))

	for name := range isolating {
		delete(access, name)
	}

	return groups, access
}

// add adds a namespace whose policies use the group.
func (a Access) add(group, namespace string) {
	if i, found := slices.BinarySearch(a[group], namespace); !found {
		a[group] = slices.Insert(a[group], i, namespace)
	}
}

// candidatePolicies returns the policies with a selector that may match the pod, of their own pods
// or of peers, without duplicates. namespace is the pod's, or nil.
func (c *Cluster) candidatePolicies(pod *corev1.Pod, namespace *corev1.Namespace) []*networkingv1.NetworkPolicy {
	values := []string{inNamespace(pod.Namespace), anyPod}
	if namespace != nil {
		values = append(values, labelValues(namespaceLabels, namespace.Labels)...)
	}

	values = append(values, labelValues(podLabels, pod.Labels)...)

	var out []*networkingv1.NetworkPolicy

	seen := map[*networkingv1.NetworkPolicy]bool{}

	for _, v := range values {
		for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, ByPods, v) {
			if !seen[p] {
				seen[p], out = true, append(out, p)
			}
		}
	}

	return out
}

// ByPods is the index that finds the policies of a pod without a look at all policies. Its values
// are requirements, which a pod meets or not:
//
//	in NAMESPACE           the pod is in this namespace
//	pod KEY                the pod has the label
//	pod KEY=VALUE          the pod has the label with this value
//	namespace KEY          the pod's namespace has the label
//	namespace KEY=VALUE    the pod's namespace has the label with this value
//	any                    every pod meets it
//
// PodsOf returns a policy's values such that every pod which it selects meets at least one of them.
// candidatePolicies looks up all values that a pod meets.
const (
	anyPod          = "any"
	podLabels       = "pod"
	namespaceLabels = "namespace"
)

// inNamespace returns the requirement that the namespace's pods meet.
func inNamespace(namespace string) string { return "in " + namespace }

// labelValues returns the requirements that labels meet. of is podLabels or namespaceLabels.
func labelValues(of string, labels map[string]string) []string {
	out := make([]string, 0, 2*len(labels))
	for k, v := range labels {
		out = append(out, of+" "+k, of+" "+k+"="+v)
	}

	return out
}

// PodsOf is the index function of policies for ByPods. It returns the requirements of all selectors
// of a policy: of its own pods, of its peers, and of pods with named ports.
func PodsOf(obj any) ([]string, error) {
	p, _ := obj.(*networkingv1.NetworkPolicy)

	u, ok := usageOf(p)
	if !ok {
		return nil, nil
	}

	var out []string
	for _, s := range u.selectors() {
		out = append(out, s.requirements()...)
	}

	for _, n := range slices.Concat(u.named[ingressSide], u.named[egressSide]) {
		out = append(out, n.requirements()...)
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

// requirements returns the requirements of which every selected pod meets at least one. They are
// the narrowest that are cheap to find.
func (s selector) requirements() []string {
	if s.namespaces == nil {
		return []string{inNamespace(s.namespace)}
	}

	if r := labelRequirements(namespaceLabels, s.namespaces); r != nil {
		return r
	}

	if r := labelRequirements(podLabels, s.pods); r != nil {
		return r
	}

	return []string{anyPod}
}

// labelRequirements returns requirements of which labels that the selector selects meet at least
// one. It returns nil if the selector has none, such as "NotIn" alone.
func labelRequirements(of string, s *metav1.LabelSelector) []string {
	if keys := slices.Sorted(maps.Keys(s.MatchLabels)); len(keys) > 0 {
		return []string{of + " " + keys[0] + "=" + s.MatchLabels[keys[0]]} // any key would do
	}

	for _, e := range s.MatchExpressions {
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			var out []string
			for _, v := range e.Values {
				out = append(out, of+" "+e.Key+"="+v)
			}

			return out
		case metav1.LabelSelectorOpExists:
			return []string{of + " " + e.Key}
		}
	}

	return nil
}

// SelectorsOf is the index function of policies for BySelector. It returns the names of the port
// groups of a policy's selectors. Groups of named ports, which the policy owns, are not in the
// index.
func SelectorsOf(obj any) ([]string, error) {
	p, _ := obj.(*networkingv1.NetworkPolicy)

	u, ok := usageOf(p)
	if !ok {
		return nil, nil
	}

	var out []string
	for _, s := range u.selectors() {
		out = append(out, s.group())
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

// selectorKeys returns the keys of all selectors of policies, each once.
func (c *Cluster) selectorKeys() []Key {
	seen := map[string]bool{}

	var out []Key

	for _, obj := range c.Stores[KindPolicy].List() {
		names, _ := SelectorsOf(obj) // it returns no error
		for _, name := range names {
			if !seen[name] {
				seen[name], out = true, append(out, SelectorKey(name))
			}
		}
	}

	return out
}
