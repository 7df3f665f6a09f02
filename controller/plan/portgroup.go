package plan

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SelectorKey owns the port group of that name, which is of the pods that a
// selector of policies means.
func SelectorKey(group string) Key { return Key{Kind: KindSelector, Name: group} }

// PolicyKey owns what a NetworkPolicy allows.
func PolicyKey(namespace, name string) Key { return Key{KindPolicy, namespace, name} }

// selectorRows are the port group of the pods that a selector means, which is
// there while any policy has that selector, and the ACLs that drop what no
// policy allows if some policy is for these pods.
func selectorRows(c *Cluster, key Key) ([]Row, error) {
	var meant *selector
	var in, out bool
	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, BySelector, key.Name) {
		known := c.usages.of(p) // hashed once: a policy's groups are each an owner of its own
		for i, g := range known.groups {
			if g.name != key.Name {
				continue
			}
			if meant == nil {
				meant = &g.selector
			}
			if i == 0 {
				in, out = in || known.in, out || known.out
			}
		}
	}
	if meant == nil {
		return nil, nil
	}
	rows := []Row{PortGroup{Name: key.Name, ExternalIDs: map[string]string{"pods": meant.text()}}}
	logging, _ := c.aclLogging(meant.namespace) // the policies report what is wrong with it
	for _, d := range []struct {
		direction
		wanted bool
	}{{ingress(), in}, {egress(), out}} {
		if d.wanted {
			// ARP is no IP, and OVN lets neighbour discovery pass before it asks ACLs.
			rows = append(rows, ACL{
				Group: key.Name, Rule: "deny", Label: aclLabel(meant.namespace, d.name), Direction: d.lport, Priority: denyPriority,
				Match: conjunction(d.self+" == @"+key.Name, "ip"), Action: "drop", Options: d.options,
			}.logged(logging.Deny))
		}
	}
	return rows, nil
}

// nodeACL is what the node's pods are always allowed: what comes from their own node by
// its management port, kubelet's probes among it, and what they send themselves
// by way of a Service. That this ACL keeps connections' state is also what has OVN
// track every connection of the switch from its first packet, whether there are policies
// yet or not: one that is first seen in its middle may be taken for the other direction's, and
// a policy would not cut it.
func (n node) nodeACL() Row {
	hairpin := strings.Fields(hairpinAddresses)
	own := map[string][]string{"ip4": {hairpin[0]}, "ip6": {hairpin[1]}}
	for _, s := range n.subnets {
		a := ManagementAddress(s).Addr()
		own[family(a)] = append(own[family(a)], a.String())
	}
	in := rule{direction: ingress()}
	return ACL{
		Switch: nodeSwitch(n.name), Rule: "node", Label: aclLabel("node", n.name), Direction: in.lport, Priority: allowPriority,
		Match: disjunction(in.setMatch("ip4", own["ip4"]), in.setMatch("ip6", own["ip6"])), Action: "allow-related",
	}
}

// groups are the port groups that the pod's port is in, sorted. There may be
// thousands of policies: only those are asked that have a chance to mean the pod.
func (c *Cluster) groups(pod *corev1.Pod) []string {
	namespace := c.Namespace(pod.Namespace)
	var out []string
	for _, p := range c.candidates(pod, namespace) {
		known := c.usages.of(p)
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

// candidates are the policies that may mean the pod, each once.
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

// PodsOf is the index function for ByPods: what a pod has at least, if a policy
// means it. Each of the policy's selectors gives one requirement, as narrow as
// is seen at a glance.
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

// requirement is one that every pod that is meant meets at least one value of.
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

// SelectorsOf is the index function for BySelector: the names of the port
// groups that a policy refers to and that are not its own.
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

// selectorKeys are the keys of all selectors that policies have.
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
