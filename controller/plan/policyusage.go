package plan

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	services "github.com/ovn-ebpf/ovn-ebpf/service"
)

// usage has the selectors and the named ports of a policy. They define the port groups to which the
// policy refers: one for each selector, and one for each number of a named port. The plans of pods,
// selectors and policies all use it, so they agree on the groups and their members. Malformed
// selectors and ports, and those that exceed the policy's bounds, are left out.
type usage struct {
	subject selector             // the policy's own pods
	in, out bool                 // directions in which the subject's pods are isolated
	peers   perSide[[]selector]  // of rules
	named   perSide[[]namedPort] // of rules
}

// usageOf returns the usage of a policy. It returns false for nil and for a policy that applies to
// no pod.
func usageOf(p *networkingv1.NetworkPolicy) (usage, bool) {
	if p == nil {
		return usage{}, false
	}

	u := usage{subject: selector{namespace: p.Namespace, pods: &p.Spec.PodSelector}}
	if podSelectorExceeds(p) { // selecting the pods would cost too much: isolate all
		u.subject.pods = &metav1.LabelSelector{}
	}

	u.in, u.out = isolates(p)
	if u.subject.check() != nil || !u.in && !u.out {
		return usage{}, false
	}

	for _, r := range rulesOf(p) {
		u.peers[r.side] = append(u.peers[r.side], r.selectors()...)
		u.named[r.side] = append(u.named[r.side], r.namedPorts(u.subject)...)
	}

	return u, true
}

// selectors returns the selectors of the subject and of the peers, the subject first.
func (u usage) selectors() []selector {
	return slices.Concat([]selector{u.subject}, u.peers[ingressSide], u.peers[egressSide])
}

// usageCache caches the usage of policies, so that it is not computed for every pod. A policy in a
// store is never changed, only replaced, so its pointer identifies a version.
type usageCache struct {
	mu     sync.Mutex // guards cached
	cached map[Key]*cachedUsage
}

// cachedUsage is a usage as a list of port groups. It is empty for a policy that applies to no pod.
type cachedUsage struct {
	policy  *networkingv1.NetworkPolicy
	groups  []usedGroup // of the subject, which is first, of the peers and of named ports, each once
	in, out bool        // as in usage
}

// usedGroup is the port group of a selector of a policy. With a named port, it stands for the
// groups of the selected pods that have the port, one for each number. A policy that uses the same
// group for several purposes has one usedGroup for it.
type usedGroup struct {
	selector
	key       string        // the group's name; with a named port, a text that is not a name of a group
	port      *namedPort    // nil: all selected pods are in the group
	isSubject bool          // the group of the policy's own pods, which exists as long as the policy
	sides     perSide[bool] // whose rules refer to it; it exists while one of them is served
}

// existsWith reports whether the group exists if these sides of the policy are served.
func (g usedGroup) existsWith(served perSide[bool]) bool {
	return g.isSubject || g.sides[ingressSide] && served[ingressSide] || g.sides[egressSide] && served[egressSide]
}

// names returns the names of the groups that the selected pod is in.
func (g usedGroup) names(pod *corev1.Pod) []string {
	if g.port == nil {
		return []string{g.key}
	}

	var out []string
	for _, number := range g.port.numbersOf(pod) {
		out = append(out, g.port.group(number))
	}

	return out
}

// maxUsages is the size at which the cache is emptied. It may have deleted policies, because a plan
// may read a policy that is dropped at the same time.
const maxUsages = 10000

// drop forgets a policy that has left the store. A policy and its usage have up to 256 selectors,
// so those of deleted policies would use much memory.
func (us *usageCache) drop(k Key) {
	us.mu.Lock()
	defer us.mu.Unlock()

	delete(us.cached, k)
}

// of returns the usage of a version of a policy, which may be nil. It must not be changed. The
// cache has the version that was asked for last.
func (us *usageCache) of(p *networkingv1.NetworkPolicy) *cachedUsage {
	if p == nil {
		return &cachedUsage{}
	}

	us.mu.Lock()
	defer us.mu.Unlock()

	k := PolicyKey(p.Namespace, p.Name)
	if u := us.cached[k]; u != nil && u.policy == p {
		return u
	}

	if us.cached == nil || len(us.cached) >= maxUsages {
		us.cached = map[Key]*cachedUsage{}
	}

	out := newCachedUsage(p)
	us.cached[k] = out

	return out
}

func newCachedUsage(p *networkingv1.NetworkPolicy) *cachedUsage {
	u, ok := usageOf(p)
	if !ok {
		return &cachedUsage{policy: p}
	}

	out := &cachedUsage{policy: p, in: u.in, out: u.out}
	out.groups = append(out.groups, usedGroup{selector: u.subject, key: u.subject.group(), isSubject: true})

	for side := range sides {
		for _, s := range u.peers[side] {
			out.add(usedGroup{selector: s, key: s.group()}, side)
		}

		for _, n := range u.named[side] {
			out.add(usedGroup{selector: n.selector, key: n.policy + " " + n.canonicalText(), port: &n}, side)
		}
	}

	return out
}

// add adds a group to which the rules of a side refer.
func (u *cachedUsage) add(g usedGroup, side int) {
	i := u.find(g.key)
	if i < 0 {
		i = len(u.groups)
		u.groups = append(u.groups, g)
	}

	u.groups[i].sides[side] = true
}

// find returns the index of the group with the key, or -1.
func (u *cachedUsage) find(key string) int {
	return slices.IndexFunc(u.groups, func(g usedGroup) bool { return g.key == key })
}

// subject returns the group of the policy's own pods, or nil if the policy applies to no pod.
func (u *cachedUsage) subject() *usedGroup {
	if len(u.groups) == 0 {
		return nil
	}

	return &u.groups[0]
}

// hasSame reports whether the usage has the group, with the same purposes.
func (u *cachedUsage) hasSame(g usedGroup) bool {
	i := u.find(g.key)
	return i >= 0 && u.groups[i].sides == g.sides && u.groups[i].isSubject == g.isSubject
}

// selectors returns the selectors of the rule's peers. Peers that are blocks of addresses have
// none.
func (r rule) selectors() []selector {
	var out []selector

	for i, peer := range r.peers {
		if !selectsPods(peer) || isMarked(r.excessPeers, i) {
			continue
		}

		if s := peerSelector(r.policy.Namespace, peer); s.check() == nil {
			out = append(out, s)
		}
	}

	return out
}

// selectsPods reports whether a peer of a rule is a selector of pods, and not a block of addresses.
func selectsPods(p networkingv1.NetworkPolicyPeer) bool {
	return p.IPBlock == nil && (p.PodSelector != nil || p.NamespaceSelector != nil)
}

// namedPort is a port that a rule refers to by name, with a selector of the pods that have it. Each
// pod may have another number for it. The selected pods that have the same number form a group of
// the policy.
type namedPort struct {
	selector
	policy, protocol, name string // policy is "namespace/name"
}

// namedPorts returns the rule's named ports, each with the pods that have the port: the policy's
// own pods for ingress, the peers for egress.
func (r rule) namedPorts(subject selector) []namedPort {
	havingPort := []selector{subject}
	if r.side == egressSide {
		havingPort = r.selectors()
		if len(r.peers) == 0 { // all pods of all namespaces
			havingPort = []selector{{namespaces: &metav1.LabelSelector{}, pods: &metav1.LabelSelector{}}}
		}
	}

	var out []namedPort

	for i, port := range r.ports {
		if isMarked(r.excessPorts, i) || port.Port == nil || port.Port.Type != intstr.String ||
			checkPort(port) != nil {
			continue
		}

		for _, s := range havingPort {
			policy := r.policy.Namespace + "/" + r.policy.Name
			out = append(out, namedPort{s, policy, portProtocol(port), port.Port.StrVal})
		}
	}

	return out
}

// canonicalText returns a text that is equal for named ports of a policy that have the same groups.
func (n namedPort) canonicalText() string {
	return n.selector.canonicalText() + ", port " + n.protocol + " " + n.name
}

// group returns the name of the port group of the selected pods that have the number.
func (n namedPort) group(number int) string {
	return groupName("port", n.policy, n.canonicalText(), strconv.Itoa(number))
}

// numbersOf returns the numbers that the pod has for the port. The API server allows only one.
func (n namedPort) numbersOf(pod *corev1.Pod) []int {
	var out []int

	for _, c := range namedPortContainers(pod) {
		for _, port := range c.Ports {
			if port.Name == n.name &&
				strings.EqualFold(string(services.Protocol(port.Protocol)), n.protocol) {
				out = append(out, int(port.ContainerPort))
			}
		}
	}

	return out
}

// namedPortNumbers returns the numbers that the port has in all selected pods, sorted.
func (c *Cluster) namedPortNumbers(n namedPort) []int {
	value := portNameValue(n.namespace, n.protocol, n.name)

	var out []int

	for _, pod := range index[corev1.Pod](c, KindPod, ByPortName, value) {
		if NeedsPort(pod) && n.matches(pod, c.Namespace(pod.Namespace)) {
			out = append(out, n.numbersOf(pod)...)
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// hasNumber reports whether any selected pod has the number for the port. It looks at the current
// version of the pod first, because that saves the search in most cases.
func (c *Cluster) hasNumber(n namedPort, number int, first *corev1.Pod) bool {
	has := func(pod *corev1.Pod) bool {
		return NeedsPort(pod) && slices.Contains(n.numbersOf(pod), number) &&
			n.matches(pod, c.Namespace(pod.Namespace))
	}

	if pod := c.Pod(first.Namespace, first.Name); pod != nil && has(pod) {
		return true
	}

	value := portNameValue(n.namespace, n.protocol, n.name)

	return slices.ContainsFunc(index[corev1.Pod](c, KindPod, ByPortName, value), has)
}

// PortNamesOf is the index function for ByPortName. It returns the names of a pod's ports, once for
// its namespace and once for all namespaces.
func PortNamesOf(obj any) ([]string, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}

	var out []string

	for _, c := range namedPortContainers(p) {
		for _, port := range c.Ports {
			proto := strings.ToLower(string(services.Protocol(port.Protocol)))
			out = append(out, portNameValue(p.Namespace, proto, port.Name),
				portNameValue("", proto, port.Name))
		}
	}

	return out, nil
}

// portNameValue returns a value of ByPortName. An empty namespace stands for all namespaces.
func portNameValue(namespace, protocol, name string) string {
	return namespace + "/" + protocol + "/" + name
}

// namedPortContainers returns those of the pod's containers that have named ports, reduced to these
// ports. Sidecars (restartable init containers) are included.
func namedPortContainers(p *corev1.Pod) []corev1.Container {
	var out []corev1.Container

	addContainer := func(c corev1.Container) {
		var ports []corev1.ContainerPort

		for _, port := range c.Ports {
			if port.Name != "" {
				ports = append(ports, corev1.ContainerPort{
					Name:          port.Name,
					ContainerPort: port.ContainerPort,
					Protocol:      port.Protocol,
				})
			}
		}

		if len(ports) > 0 {
			out = append(out, corev1.Container{Ports: ports})
		}
	}

	for _, c := range p.Spec.Containers {
		addContainer(c)
	}

	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			addContainer(c)
		}
	}

	return out
}
