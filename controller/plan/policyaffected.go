package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// PolicyAffects returns the keys whose rows a change of a policy may change,
// sorted; old is nil for a new one, now for one that is gone. A pod is among them if a
// group that it may be in comes to the policy: one that goes takes its members with it.
func PolicyAffects(c *Cluster, old, now *networkingv1.NetworkPolicy) []Key {
	keys := map[Key]bool{}
	was, is := policyGroups(old), policyGroups(now)
	for _, p := range []*networkingv1.NetworkPolicy{old, now} {
		if p != nil {
			keys[PolicyKey(p.Namespace, p.Name)] = true
			names, _ := SelectorsOf(p) // it returns no error
			for _, name := range names {
				keys[SelectorKey(name)] = true
			}
		}
	}
	for name, s := range is {
		if _, had := was[name]; !had {
			c.addPods(keys, s)
		}
	}
	return sortKeys(slices.Collect(maps.Keys(keys)))
}

// policyGroups are the groups that a pod may be in because of the policy; those
// of named ports stand for those of all numbers.
func policyGroups(p *networkingv1.NetworkPolicy) map[string]selector {
	out := map[string]selector{}
	if p == nil {
		return out
	}
	u, _ := usageOf(p)
	for _, s := range u.peers {
		out[s.group()] = s
	}
	for _, n := range u.named {
		out[n.group(0)] = n.selector
	}
	if u.in || u.out {
		out[u.subject.group()] = u.subject
	}
	return out
}

// addPods adds the pods that the selector means now.
func (c *Cluster) addPods(keys map[Key]bool, s selector) {
	add := func(namespace string, ns *corev1.Namespace) {
		for _, p := range index[corev1.Pod](c.Pods, ByNamespace, namespace) {
			if NeedsPort(p) && s.matches(p, ns) {
				keys[PodKey(p.Namespace, p.Name)] = true
			}
		}
	}
	if s.namespaces == nil {
		add(s.namespace, nil)
		return
	}
	for _, obj := range c.Namespaces.List() {
		if ns, ok := obj.(*corev1.Namespace); ok && selects(s.namespaces, ns.Labels) {
			add(ns.Name, ns)
		}
	}
}

// PodAffects returns the keys of the policies that have a group for a number of
// a port that they name and the pod, in either version, has.
func PodAffects(c *Cluster, old, now *corev1.Pod) []Key {
	keys := map[Key]bool{}
	for _, pod := range []*corev1.Pod{old, now} {
		if pod == nil || len(NamedPorts(pod)) == 0 {
			continue
		}
		namespace := c.Namespace(pod.Namespace)
		for _, p := range c.candidates(pod, namespace) {
			if slices.ContainsFunc(c.usages.of(p).named, func(n namedPort) bool {
				return n.matches(pod, namespace) && len(n.numbersOf(pod)) > 0
			}) {
				keys[PolicyKey(p.Namespace, p.Name)] = true
			}
		}
	}
	return sortKeys(slices.Collect(maps.Keys(keys)))
}

// NamespaceAffects returns the keys whose rows a change of a namespace may
// change, sorted: with its labels, its pods' groups and the numbers of ports that policies
// name; with its logging, the ACLs of its policies.
func NamespaceAffects(c *Cluster, old, now *corev1.Namespace) []Key {
	keys := map[Key]bool{}
	var name, was, is string
	var wasLabels, isLabels map[string]string
	if old != nil {
		name, was, wasLabels = old.Name, old.Annotations[ACLLogging], old.Labels
	}
	if now != nil {
		name, is, isLabels = now.Name, now.Annotations[ACLLogging], now.Labels
	}
	exists := old == nil || now == nil
	if exists || !maps.Equal(wasLabels, isLabels) {
		for _, p := range index[corev1.Pod](c.Pods, ByNamespace, name) {
			if NeedsPort(p) {
				keys[PodKey(p.Namespace, p.Name)] = true
			}
		}
		c.addNaming(keys)
	}
	if exists || was != is {
		c.addPolicies(keys, name)
	}
	return sortKeys(slices.Collect(maps.Keys(keys)))
}

// addNaming adds the policies that name ports of pods in namespaces with certain labels.
func (c *Cluster) addNaming(keys map[Key]bool) {
	for _, obj := range c.Policies.List() {
		p, ok := obj.(*networkingv1.NetworkPolicy)
		if !ok {
			continue
		}
		if slices.ContainsFunc(c.usages.of(p).named, func(n namedPort) bool { return n.namespaces != nil }) {
			keys[PolicyKey(p.Namespace, p.Name)] = true
		}
	}
}

// addPolicies adds the namespace's policies and whom they are for.
func (c *Cluster) addPolicies(keys map[Key]bool, namespace string) {
	for _, p := range index[networkingv1.NetworkPolicy](c.Policies, ByPods, "in "+namespace) {
		if p.Namespace != namespace {
			continue
		}
		keys[PolicyKey(p.Namespace, p.Name)] = true
		if u, ok := usageOf(p); ok {
			keys[SelectorKey(u.subject.group())] = true
		}
	}
}

// NamespaceOf is the index function for ByNamespace.
func NamespaceOf(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	return []string{p.Namespace}, nil
}
