package plan

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// policyChanged adds the owners that a change of a policy's spec may affect. Pods are affected if a
// group that they may be in is added to the policy. A removed group takes its members with it.
func policyChanged(c *Cluster, keys keySet, old, now any) {
	was, is := versions[networkingv1.NetworkPolicy](old, now)
	if was != nil && is != nil && was.UID == is.UID && reflect.DeepEqual(was.Spec, is.Spec) {
		return
	}

	changed := keySet{}
	addItself(c, changed, old, now)
	maps.Copy(keys, changed)
	c.budgets.addChanged(c, keys, changed)

	for _, p := range []*networkingv1.NetworkPolicy{was, is} {
		names, _ := SelectorsOf(p) // it returns no error
		for _, name := range names {
			keys.add(SelectorKey(name))
		}
	}

	before, after := policyGroups(was), policyGroups(is)
	for name, s := range after {
		if _, had := before[name]; !had {
			c.addPods(keys, s)
		}
	}
}

// policyGroups returns the groups that a pod may be in because of the policy. A group of a named
// port stands for those of all its numbers.
func policyGroups(p *networkingv1.NetworkPolicy) map[string]selector {
	u, ok := usageOf(p)
	if !ok {
		return nil
	}

	out := map[string]selector{}
	for _, s := range u.selectors() {
		out[s.group()] = s
	}

	for _, n := range u.named {
		out[n.group(0)] = n.selector
	}

	return out
}

// addPods adds the pods that the selector selects now.
func (c *Cluster) addPods(keys keySet, s selector) {
	add := func(namespace string, ns *corev1.Namespace) {
		for _, p := range index[corev1.Pod](c, KindPod, ByNamespace, namespace) {
			if NeedsPort(p) && s.matches(p, ns) {
				keys.add(PodKey(p.Namespace, p.Name))
			}
		}
	}

	if s.namespaces == nil {
		add(s.namespace, nil)
		return
	}

	for ns := range Objects[corev1.Namespace](c, KindNamespace) {
		if selects(s.namespaces, ns.Labels) {
			add(ns.Name, ns)
		}
	}
}

// addNamedPorts adds the policies that name a port of the pod, and those that are opened or closed
// because of that.
func (c *Cluster) addNamedPorts(keys keySet, pod *corev1.Pod) {
	if len(namedPortContainers(pod)) == 0 {
		return
	}

	namespace, naming := c.Namespace(pod.Namespace), keySet{}
	for _, p := range c.candidatePolicies(pod, namespace) {
		if slices.ContainsFunc(c.usages.of(p).named, func(n namedPort) bool {
			return n.matches(pod, namespace) && len(n.numbersOf(pod)) > 0
		}) {
			naming.add(PolicyKey(p.Namespace, p.Name))
		}
	}

	maps.Copy(keys, naming)
	c.budgets.addPodChanged(c, keys, naming, pod)
}

// namespaceChanged adds the owners that a change of a namespace may affect. Its labels affect its
// pods' groups and the numbers of named ports in policies. Its logging annotation affects the ACLs
// of its policies.
func namespaceChanged(c *Cluster, keys keySet, old, now any) {
	before, after := versions[corev1.Namespace](old, now)

	var (
		name, was, is       string
		wasLabels, isLabels map[string]string
	)
	if before != nil {
		name, was, wasLabels = before.Name, before.Annotations[ACLLogging], before.Labels
	}

	if after != nil {
		name, is, isLabels = after.Name, after.Annotations[ACLLogging], after.Labels
	}

	createdOrDeleted := before == nil || after == nil
	if createdOrDeleted || !maps.Equal(wasLabels, isLabels) {
		pods := index[corev1.Pod](c, KindPod, ByNamespace, name)
		for _, p := range pods {
			if NeedsPort(p) {
				keys.add(PodKey(p.Namespace, p.Name))
			}
		}

		c.addNaming(keys, len(pods) > 0)
	}

	if createdOrDeleted || was != is {
		c.addPolicies(keys, name)
	}
}

// addNaming adds the policies that name ports of pods in namespaces with certain labels. If pods is
// set, the ports may have other numbers now.
func (c *Cluster) addNaming(keys keySet, pods bool) {
	naming := keySet{}

	for p := range Objects[networkingv1.NetworkPolicy](c, KindPolicy) {
		if slices.ContainsFunc(c.usages.of(p).named, func(n namedPort) bool { return n.namespaces != nil }) {
			naming.add(PolicyKey(p.Namespace, p.Name))
		}
	}

	maps.Copy(keys, naming)

	if pods {
		c.budgets.addChanged(c, keys, naming)
	}
}

// addPolicies adds the namespace's policies and the selectors of their pods.
func (c *Cluster) addPolicies(keys keySet, namespace string) {
	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, ByPods, inNamespace(namespace)) {
		subject := c.usages.of(p).groups[0] // ByPods has only policies with a usage
		keys.add(PolicyKey(p.Namespace, p.Name), SelectorKey(subject.name))
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
