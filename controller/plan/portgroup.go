package plan

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SelectorKey owns the port group of that name. Its members are the pods of one selector of
// policies.
func SelectorKey(group string) Key { return Key{Kind: KindSelector, Name: group} }

// PolicyKey owns the rows that allow the connections of a NetworkPolicy.
func PolicyKey(namespace, name string) Key { return Key{KindPolicy, namespace, name} }

// selectorRows returns the port group of the pods that a selector selects. It exists while a policy
// has this selector. If these pods are the subject of a policy, the rows include the ACLs that drop
// all connections that no policy allows.
func selectorRows(c *Cluster, key Key) ([]Row, error) {
	var (
		found   *selector
		in, out bool
	)

	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, BySelector, key.Name) {
		known := c.usages.usageOf(p) // cached: hashing the groups again for each of them would be costly
		for i, g := range known.groups {
			if g.name != key.Name {
				continue
			}

			if found == nil {
				found = &g.selector
			}

			if i == 0 {
				in, out = in || known.in, out || known.out
			}
		}
	}

	if found == nil {
		return nil, nil
	}

	rows := []Row{PortGroup{Name: key.Name, ExternalIDs: map[string]string{"pods": found.canonicalText()}}}
	logging, _ := c.aclLogging(found.namespace) // the policies report the error

	for _, d := range []struct {
		direction
		wanted bool
	}{{ingress(), in}, {egress(), out}} {
		if d.wanted {
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

// nodeACL allows connections that the node's pods always accept: those from their own node by its
// management port, including kubelet's probes, and those that a pod makes to itself by a Service.
//
// The ACL is stateful. Therefore OVN tracks every connection of the switch from its first packet,
// even before any policy exists. A connection that is first seen in its middle may be taken for the
// opposite direction, and a policy would not cut it.
func (n node) nodeACL() Row {
	hairpin := strings.Fields(hairpinAddresses)
	sources := map[bool][]string{true: {hairpin[0]}, false: {hairpin[1]}} // by family (is4)

	for _, s := range n.subnets {
		a := ManagementAddress(s).Addr()
		sources[a.Is4()] = append(sources[a.Is4()], a.String())
	}

	in := rule{direction: ingress()}

	return ACL{
		Switch:    nodeSwitch(n.name),
		Rule:      "node",
		Label:     aclLabel("node", n.name),
		Direction: in.lport,
		Priority:  allowPriority,
		Match:     disjunction(in.setMatch("ip4", sources[true]), in.setMatch("ip6", sources[false])),
		Action:    "allow-related",
	}
}

// groups returns the port groups of the pod's port, sorted. There may be thousands of policies, so
// only those that may select the pod are checked.
func (c *Cluster) groups(pod *corev1.Pod) []string {
	namespace := c.Namespace(pod.Namespace)

	var out []string

	for _, p := range c.candidates(pod, namespace) {
		known := c.usages.usageOf(p)
		for _, g := range known.groups {
			if g.matches(pod, namespace) {
				out = append(out, g.name)
			}
		}

		for _, n := range known.named {
			if n.matches(pod, namespace) {
				for _, number := range n.numbersOf(pod) {
					out = append(out, n.group(number))
				}
			}
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// candidates returns the policies that may select the pod, without duplicates.
func (c *Cluster) candidates(pod *corev1.Pod, namespace *corev1.Namespace) []*networkingv1.NetworkPolicy {
	values := []string{"in " + pod.Namespace, "any"}
	if namespace != nil {
		values = append(values, labelValues("namespace", namespace.Labels)...)
	}

	values = append(values, labelValues("pod", pod.Labels)...)

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

	for _, n := range u.named {
		out = append(out, n.requirement()...)
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

// requirement returns values of which every selected pod has at least one.
func (s selector) requirement() []string {
	if s.namespaces == nil {
		return []string{"in " + s.namespace}
	}

	if r := labelRequirement("namespace", s.namespaces); r != nil {
		return r
	}

	if r := labelRequirement("pod", s.pods); r != nil {
		return r
	}

	return []string{"any"}
}

func labelRequirement(of string, s *metav1.LabelSelector) []string {
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		return []string{of + " " + k + "=" + s.MatchLabels[k]}
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
