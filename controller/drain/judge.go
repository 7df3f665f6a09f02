package drain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// ErrLast is returned (wrapped) where no other gateway could take over.
var ErrLast = errors.New("it is the last gateway")

// find returns the node, which must have a gateway.
func find(nodes []corev1.Node, name string) (*corev1.Node, error) {
	i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("node %q does not exist", name)
	}
	n := &nodes[i]
	gateway, err := annotation.ParseGateway(n.Annotations)
	switch {
	case errors.Is(err, annotation.ErrNotSet):
		return nil, fmt.Errorf("node %q has no gateway: no agent has said that it has (annotation %s)", name, annotation.GatewayConfig)
	case err != nil:
		return nil, fmt.Errorf("node %q: %w", name, err)
	case gateway.Mode == annotation.GatewayModeDisabled:
		return nil, fmt.Errorf("node %q has no gateway: its pods leave by others'", name)
	}
	return n, nil
}

// check says what would break without the gateway of n, as an ErrLast. Nodes
// that are not ready or are drained themselves take nothing over.
func check(nodes []corev1.Node, n *corev1.Node) error {
	var bare []string
	exits, others := 0, 0
	for i := range nodes {
		other := &nodes[i]
		if plan.LeavesByOthers(other) {
			bare = append(bare, other.Name)
			continue
		}
		if other.Name == n.Name || annotation.Drained(other.Annotations) || !ready(other) {
			continue
		}
		if _, err := annotation.ParseGateway(other.Annotations); err != nil {
			continue
		}
		others++
		if isExit(other) {
			exits++
		}
	}
	switch {
	case len(bare) > 0 && exits == 0 && isExit(n):
		return fmt.Errorf("%w: pods on %s have none of their own, and could not leave the cluster", ErrLast, strings.Join(few(bare), ", "))
	case others == 0:
		return fmt.Errorf("%w: load balancers would be told that no node serves", ErrLast)
	}
	return nil
}

// isExit: pods that nothing translates find no way back from another's gateway.
func isExit(n *corev1.Node) bool {
	routable, err := annotation.ParseRoutablePods(n.Annotations)
	return plan.IsExit(n) && (err != nil || !routable)
}

// ready: what does not say is taken to be.
func ready(n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// remaining are the nodes whose pods still leave by the gateway, or, to bring it
// back, those that may and do not yet.
func remaining(nodes []corev1.Node, name string, back bool) []string {
	var out []string
	for i := range nodes {
		n := &nodes[i]
		if !plan.LeavesByOthers(n) {
			continue
		}
		by, err := annotation.ParseLeavesBy(n.Annotations)
		if back {
			if err == nil && (slices.Contains(by, name) || len(by) >= plan.MostExits) {
				continue
			}
			out = append(out, n.Name)
			continue
		}
		// Of one about which nothing is said the routes are not known.
		if err != nil || slices.Contains(by, name) {
			out = append(out, n.Name)
		}
	}
	return out
}

// outcome is what has been waited for, in words.
func outcome(nodes []corev1.Node, back bool) string {
	var bare []string
	for i := range nodes {
		if plan.LeavesByOthers(&nodes[i]) {
			bare = append(bare, nodes[i].Name)
		}
	}
	switch {
	case len(bare) == 0:
		return "no node is without a gateway, so there were no routes to change"
	case back:
		return "pods on " + strings.Join(few(bare), ", ") + " may leave by it again"
	}
	return "pods on " + strings.Join(few(bare), ", ") + " leave by other gateways"
}

// few shortens a list for people.
func few(names []string) []string {
	const most = 5
	if len(names) > most {
		return append(slices.Clone(names[:most]), fmt.Sprintf("and %d more", len(names)-most))
	}
	return names
}
