package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// policyChanged is the change function (entry.changed) of policies. It adds the owners that a
// change of a policy's spec may affect:
//   - the policy, and others that a budget opens or closes because of it;
//   - the selectors of both versions whose groups exist because of them. A policy without pods, or
//     beyond a budget, may have hundreds of others;
//   - the pods that a group of the new version selects, if the old version does not have the group.
//     If a group is removed, its members are removed with it.
func policyChanged(c *Cluster, keys keySet, old, now any) {
	before, after := versions[networkingv1.NetworkPolicy](old, now)

	changed := existing(before, after)[0]
	key := PolicyKey(changed.Namespace, changed.Name)

	if after == nil {
		defer c.usages.drop(key)
	}

	if after != nil && isSameVersion(after, before) {
		return
	}

	addItself(c, keys, old, now)

	c.budgets.addPolicyChange(c, keys, key, before)
}

// addPods adds the pods with a port that the selector selects now.
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

	namespace := c.Namespace(pod.Namespace)
	namesPort := func(g usedGroup) bool {
		return g.port != nil && g.matches(pod, namespace) && len(g.port.numbersOf(pod)) > 0
	}

	naming := keySet{} // the policies that name a port of the pod

	for _, p := range c.candidatePolicies(pod, namespace) {
		if slices.ContainsFunc(c.usages.of(p).groups, namesPort) {
			naming.add(PolicyKey(p.Namespace, p.Name))
		}
	}

	maps.Copy(keys, naming)
	c.budgets.addPodNumbersChange(c, keys, naming, pod)
}

// namespaceChanged is the change function of namespaces:
//   - Labels affect the groups of the namespace's pods, the numbers of named ports in policies, and
//     the budgets of policies that select namespaces by labels.
//   - The logging annotation affects the ACLs of the namespace's policies.
func namespaceChanged(c *Cluster, keys keySet, old, now any) {
	before, after := versions[corev1.Namespace](old, now)
	createdOrDeleted := before == nil || after == nil
	name := existing(before, after)[0].Name

	if createdOrDeleted || !maps.Equal(before.Labels, after.Labels) {
		c.budgets.addNamespaceChange(c, keys, name)

		pods := index[corev1.Pod](c, KindPod, ByNamespace, name)
		for _, p := range pods {
			if NeedsPort(p) {
				keys.add(PodKey(p.Namespace, p.Name))
			}
		}

		c.addPoliciesNamingPorts(keys, len(pods) > 0)
	}

	if createdOrDeleted || before.Annotations[ACLLogging] != after.Annotations[ACLLogging] {
		c.addPolicies(keys, name)
	}
}

// addPoliciesNamingPorts adds the policies that name ports of pods in namespaces with certain
// labels, after the labels of a namespace have changed. If it has pods, these ports may have other
// numbers now, which may open or close policies.
func (c *Cluster) addPoliciesNamingPorts(keys keySet, hasPods bool) {
	naming := keySet{}
	namesPort := func(g usedGroup) bool { return g.port != nil && g.namespaces != nil }

	for p := range Objects[networkingv1.NetworkPolicy](c, KindPolicy) {
		if slices.ContainsFunc(c.usages.of(p).groups, namesPort) {
			naming.add(PolicyKey(p.Namespace, p.Name))
		}
	}

	maps.Copy(keys, naming)

	if hasPods {
		c.budgets.addNumbersChange(c, keys, naming)
	}
}

// addPolicies adds the namespace's policies, and the selectors of the pods that they apply to. Both
// have ACLs that depend on the namespace's logging annotation.
func (c *Cluster) addPolicies(keys keySet, namespace string) {
	for _, p := range index[networkingv1.NetworkPolicy](c, KindPolicy, ByPods, inNamespace(namespace)) {
		subject := c.usages.of(p).subject() // not nil: ByPods has only policies that apply to pods
		keys.add(PolicyKey(p.Namespace, p.Name), SelectorKey(subject.key))
	}
}
