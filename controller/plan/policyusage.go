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

// usage has the port groups that a policy needs. The plans of pods, selectors and policies all use
// it, so they agree on the groups and their members. A group that is left out because it is
// malformed is not referred to by any row.
type usage struct {
	subject selector
	in, out bool        // directions in which the subject's pods are isolated
	peers   []selector  // of rules
	named   []namedPort // of rules
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
		u.peers = append(u.peers, r.selectors()...)
		u.named = append(u.named, r.named(u.subject)...)
	}

	return u, true
}

// selectors returns all selectors of the usage that have a port group.
func (u usage) selectors() []selector { return append([]selector{u.subject}, u.peers...) }

// usages caches the usage of policies, so that it is not computed for every pod. A policy in a
// store is never changed, only replaced.
type usages struct {
	mu    sync.Mutex // guards known
	known map[*networkingv1.NetworkPolicy]*knownUsage
}

// knownUsage is empty for a policy that applies to no pod.
type knownUsage struct {
	groups  []namedSelector // the subject first
	named   []namedPort
	in, out bool
}

type namedSelector struct {
	selector
	name string // of its group
}

// maxUsages limits the cache, because it may hold deleted policies.
const maxUsages = 10000

func (us *usages) usageOf(p *networkingv1.NetworkPolicy) *knownUsage {
	us.mu.Lock()
	defer us.mu.Unlock()

	if k := us.known[p]; k != nil {
		return k
	}

	if us.known == nil || len(us.known) >= maxUsages {
		us.known = map[*networkingv1.NetworkPolicy]*knownUsage{}
	}

	k := &knownUsage{}
	if u, ok := usageOf(p); ok {
		k.named, k.in, k.out = u.named, u.in, u.out
		for _, s := range u.selectors() {
			k.groups = append(k.groups, namedSelector{s, s.group()})
		}
	}

	us.known[p] = k

	return k
}

// selectors returns the selectors of the rule's peers that are pods.
func (r rule) selectors() []selector {
	var out []selector

	for i, peer := range r.from {
		if !isPods(peer) || isMarked(r.overPeers, i) {
			continue
		}

		if s := peerSelector(r.policy.Namespace, peer); s.check() == nil {
			out = append(out, s)
		}
	}

	return out
}

func isPods(p networkingv1.NetworkPolicyPeer) bool {
	return p.IPBlock == nil && (p.PodSelector != nil || p.NamespaceSelector != nil)
}

// namedPort is a port that a rule refers to by name. Each pod may have another number for it. The
// selected pods that have the same number form a group of the policy.
type namedPort struct {
	selector
	policy, protocol, name string
}

// named returns the rule's named ports, each with the pods that have the port: the policy's own
// pods for ingress, the peers for egress.
func (r rule) named(subject selector) []namedPort {
	where := []selector{subject}
	if r.lport == egress().lport {
		where = r.selectors()
		if len(r.from) == 0 {
			where = []selector{{namespaces: &metav1.LabelSelector{}, pods: &metav1.LabelSelector{}}}
		}
	}

	var out []namedPort

	for i, port := range r.ports {
		if isMarked(r.overPorts, i) || port.Port == nil || port.Port.Type != intstr.String ||
			checkPort(port) != nil {
			continue
		}

		for _, s := range where {
			policy := r.policy.Namespace + "/" + r.policy.Name
			out = append(out, namedPort{s, policy, portProtocol(port), port.Port.StrVal})
		}
	}

	return out
}

func (n namedPort) canonicalText() string {
	return n.selector.canonicalText() + ", port " + n.protocol + " " + n.name
}

func (n namedPort) group(number int) string {
	return groupName("port", n.policy, n.canonicalText(), strconv.Itoa(number))
}

// numbersOf returns the numbers of the pod's port. The API server allows only one.
func (n namedPort) numbersOf(pod *corev1.Pod) []int {
	var out []int

	for _, c := range NamedPorts(pod) {
		for _, port := range c.Ports {
			if port.Name == n.name &&
				strings.EqualFold(string(services.Protocol(port.Protocol)), n.protocol) {
				out = append(out, int(port.ContainerPort))
			}
		}
	}

	return out
}

// numbers returns the numbers that the port has in all selected pods, sorted.
func (c *Cluster) numbers(n namedPort) []int {
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

// hasNumber reports whether a selected pod has the number for the port. It first looks at the
// current version of the given pod.
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

	for _, c := range NamedPorts(p) {
		for _, port := range c.Ports {
			proto := strings.ToLower(string(services.Protocol(port.Protocol)))
			out = append(out, portNameValue(p.Namespace, proto, port.Name),
				portNameValue("", proto, port.Name))
		}
	}

	return out, nil
}

func portNameValue(namespace, protocol, name string) string {
	return namespace + "/" + protocol + "/" + name
}

// NamedPorts returns the pod's containers, including sidecars (restartable init containers),
// reduced to their named ports.
func NamedPorts(p *corev1.Pod) []corev1.Container {
	var out []corev1.Container

	add := func(c corev1.Container) {
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
		add(c)
	}

	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}

	return out
}
