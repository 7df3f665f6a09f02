package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// selector selects pods by their labels, in one namespace or in the namespaces with certain labels.
type selector struct {
	namespace  string                // "" if namespaces is set
	namespaces *metav1.LabelSelector // nil if namespace is set
	pods       *metav1.LabelSelector
}

// peerSelector returns the selector of a peer of a policy. Without a namespace selector it selects
// in the policy's own namespace, without a pod selector all pods.
func peerSelector(namespace string, peer networkingv1.NetworkPolicyPeer) selector {
	s := selector{namespace: namespace, pods: peer.PodSelector}
	if peer.NamespaceSelector != nil {
		s.namespace, s.namespaces = "", peer.NamespaceSelector
	}

	if s.pods == nil {
		s.pods = &metav1.LabelSelector{}
	}

	return s
}

// matches reports whether the selector selects the pod. namespace is the pod's. It may be nil if
// the store does not have it: then a selector of namespaces by their labels does not match.
func (s selector) matches(pod *corev1.Pod, namespace *corev1.Namespace) bool {
	if s.namespaces == nil {
		return s.namespace == pod.Namespace && selects(s.pods, pod.Labels)
	}

	return namespace != nil && selects(s.namespaces, namespace.Labels) && selects(s.pods, pod.Labels)
}

// canonicalText returns a text that is equal for selectors that select the same pods, as far as the
// selectors alone show. It identifies the selector's port group, and is in its external_ids.
func (s selector) canonicalText() string {
	return s.where() + ", pods " + canonicalLabels(s.pods)
}

// where returns a text that is equal for selectors that select from the same namespaces, as far as
// the selectors alone show.
func (s selector) where() string {
	if s.namespaces == nil {
		return "namespace " + s.namespace
	}

	return "namespaces " + canonicalLabels(s.namespaces)
}

// group returns the name of the port group of the selected pods.
func (s selector) group() string { return groupName("selector", s.canonicalText()) }

// groupName returns the name of a port group from its identifying parts. It is a symbol in OVN's
// expressions and begins with a letter. 96 bits of the hash make a collision infeasible.
func groupName(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "a" + hex.EncodeToString(sum[:12])
}

// canonicalLabels returns a label selector's requirements, sorted, or "all".
func canonicalLabels(s *metav1.LabelSelector) string {
	var parts []string
	for k, v := range s.MatchLabels {
		parts = append(parts, k+"="+v)
	}

	for _, e := range s.MatchExpressions {
		values := slices.Compact(slices.Sorted(slices.Values(e.Values)))
		switch {
		case e.Operator == metav1.LabelSelectorOpIn && len(values) == 1:
			parts = append(parts, e.Key+"="+values[0])
		case len(values) == 0:
			parts = append(parts, e.Key+" "+string(e.Operator))
		default:
			parts = append(parts, e.Key+" "+string(e.Operator)+" "+strings.Join(values, "|"))
		}
	}

	if len(parts) == 0 {
		return "all"
	}

	slices.Sort(parts)

	return strings.Join(slices.Compact(parts), " and ")
}

// selects reports whether the labels meet all requirements. It agrees with
// metav1.LabelSelectorAsSelector for every selector that checkLabels accepts. That function costs
// microseconds per requirement, too much for a call per pod and selector.
func selects(s *metav1.LabelSelector, labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}

	for _, e := range s.MatchExpressions {
		have, ok := labels[e.Key]

		var met bool

		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			met = ok && slices.Contains(e.Values, have)
		case metav1.LabelSelectorOpNotIn:
			met = !ok || !slices.Contains(e.Values, have)
		case metav1.LabelSelectorOpExists:
			met = ok
		case metav1.LabelSelectorOpDoesNotExist:
			met = !ok
		}

		if !met {
			return false
		}
	}

	return true
}

// check returns the error of a malformed selector, or nil.
func (s selector) check() error {
	if s.namespaces != nil {
		if err := checkLabels(s.namespaces); err != nil {
			return fmt.Errorf("namespaceSelector: %w", err)
		}
	}

	if err := checkLabels(s.pods); err != nil {
		return fmt.Errorf("podSelector: %w", err)
	}

	return nil
}

// checkLabels returns the error of a malformed label selector, or nil.
func checkLabels(s *metav1.LabelSelector) error {
	for i, e := range s.MatchExpressions {
		switch e.Operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			if len(e.Values) == 0 {
				return fmt.Errorf("matchExpressions[%d]: operator %s without values", i, e.Operator)
			}
		case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			if len(e.Values) > 0 {
				return fmt.Errorf("matchExpressions[%d]: operator %s with values", i, e.Operator)
			}
		default:
			return fmt.Errorf("matchExpressions[%d]: unknown operator %q", i, e.Operator)
		}
	}

	return nil
}
