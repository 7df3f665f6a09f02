package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selectorRows returns the port group of the pods that a selector selects. It exists while these
// pods are the subject of a policy, or while the selector is in a rule of a direction that is
// served. If these pods are the subject of a policy, the rows include the ACLs that drop all
// connections that no policy allows.
func selectorRows(c *Cluster, key Key) ([]Row, error) {
	var (
		found                           *selector
		isolatesIngress, isolatesEgress bool
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
				Direction: d.lport,
				Priority:  denyPriority,
				Match:     conjunction(d.self+" == @"+key.Name, "ip"),
				Action:    "drop",
				Options:   d.options,
			}.logged(logging.Deny))
		}
	}

	return rows, nil
}

// portGroups returns the names of the port groups of the pod's port, sorted, and those of them that
// do not isolate the pod. There may be thousands of policies, so only those that may select the pod
// are checked. Groups that no served direction of a policy refers to do not exist.
func (c *Cluster) portGroups(pod *corev1.Pod) (groups, access []string) {
	namespace, isolating := c.Namespace(pod.Namespace), map[string]bool{} // by name

	for _, p := range c.candidatePolicies(pod, namespace) {
		used, served := c.usages.of(p), c.budgets.served(c, p)
		for _, g := range used.groups {
			if !g.existsWith(served) || !g.matches(pod, namespace) {
				continue
			}

			groups = append(groups, g.names(pod)...)

			if g.isSubject {
				isolating[g.key] = true
			}
		}
	}

	slices.Sort(groups)
	groups = slices.Compact(groups)

	for _, name := range groups {
		if !isolating[name] {
			access = append(access, name)
		}
	}

	return groups, access
}

// candidatePolicies returns the policies that may select the pod, without duplicates.
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

// Values of ByPods are requirements that a pod meets or not. Those of labels are
// "pod KEY", "pod KEY=VALUE", and the same for the labels of the pod's namespace.
const (
	anyPod          = "any" // every pod meets it
	podLabels       = "pod"
	namespaceLabels = "namespace"
)

// inNamespace returns the value of ByPods that the namespace's pods meet.
func inNamespace(namespace string) string { return "in " + namespace }

// labelValues returns the values of ByPods that labels meet. of is podLabels or namespaceLabels.
func labelValues(of string, labels map[string]string) []string {
	out := make([]string, 0, 2*len(labels))
	for k, v := range labels {
		out = append(out, of+" "+k, of+" "+k+"="+v)
	}

	return out
}

// PodsOf is the index function for ByPods. For each selector of a policy it returns one requirement
// that every selected pod meets, the narrowest that is cheap to find.
func PodsOf(obj any) ([]string, error) {
	p, _ := obj.(*networkingv1.NetworkPolicy)

	u, ok := usageOf(p)
	if !ok {
		return nil, nil
	}

	var out []string
	for _, s := range u.selectors() {
		out = append(out, s.requirement()...)
	}

	for _, n := range slices.Concat(u.named[ingressSide], u.named[egressSide]) {
		out = append(out, n.requirement()...)
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

// requirement returns values of ByPods of which every selected pod meets at least one.
func (s selector) requirement() []string {
	if s.namespaces == nil {
		return []string{inNamespace(s.namespace)}
	}

	if r := labelRequirement(namespaceLabels, s.namespaces); r != nil {
		return r
	}

	if r := labelRequirement(podLabels, s.pods); r != nil {
		return r
	}

	return []string{anyPod}
}

// labelRequirement returns values of ByPods of which labels that the selector selects meet at least
// one, or nil if there are no such values.
func labelRequirement(of string, s *metav1.LabelSelector) []string {
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		return []string{of + " " + k + "=" + s.MatchLabels[k]} // any one of them suffices: the first
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

// SelectorsOf is the index function for BySelector. It returns the names of the port groups that a
// policy refers to and does not own.
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

// selectorKeys returns the keys of all selectors of policies.
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
