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

// selector says which pods are meant: those of one namespace, or of the
// namespaces with these labels, that have these labels.
type selector struct {
	namespace  string                // "" if namespaces is set
	namespaces *metav1.LabelSelector // nil if namespace is set
	pods       *metav1.LabelSelector
}

// peerSelector is the selector of a peer of a policy. A peer without a
// namespace selector means the policy's own namespace, one without a pod
// selector all pods.
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

// matches says whether the pod, of that namespace, is meant. Of a namespace
// that is not known only its name is: nil matches no labels, not even the
// absence of some.
func (s selector) matches(pod *corev1.Pod, namespace *corev1.Namespace) bool {
	if s.namespaces == nil {
		return s.namespace == pod.Namespace && selects(s.pods, pod.Labels)
	}
	return namespace != nil && selects(s.namespaces, namespace.Labels) && selects(s.pods, pod.Labels)
}

// text says the same for selectors that mean the same pods, as far as that is
// seen without knowing what labels there are.
func (s selector) text() string {
	where := "namespace " + s.namespace
	if s.namespaces != nil {
		where = "namespaces " + labelText(s.namespaces)
	}
	return where + ", pods " + labelText(s.pods)
}

// group is the name of the port group of the pods that are meant.
func (s selector) group() string { return groupName("selector", s.text()) }

// groupName makes the name of a port group of what identifies it. It is a
// symbol of OVN's expressions and begins with a letter; 96 bits of the hash are
// enough for nobody to find a second text for a name.
func groupName(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "a" + hex.EncodeToString(sum[:12])
}

// labelText is a label selector's requirements, sorted, or "all".
func labelText(s *metav1.LabelSelector) string {
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

// selects says whether the labels meet all requirements. It agrees with
// metav1.LabelSelectorAsSelector for every selector that checkLabels accepts;
// that function costs microseconds for each requirement, and this question is
// asked for each pod and selector.
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

// check returns what is wrong with a selector, nil if nothing is.
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
