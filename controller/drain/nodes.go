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

// ErrLast is returned (wrapped) if no other gateway could take over.
var ErrLast = errors.New("it is the last gateway")

// findGateway returns the node of that name. It returns an error if the node has no gateway.
func findGateway(nodes []corev1.Node, name string) (*corev1.Node, error) {
	i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("node %q does not exist", name)
	}

	n := &nodes[i]

	gateway, err := annotation.ParseGateway(n.Annotations)
	switch {
	case errors.Is(err, annotation.ErrNotSet):
		return nil, fmt.Errorf("node %q has no gateway: no agent has reported one (annotation %s)",
			name, annotation.GatewayConfig)
	case err != nil:
		return nil, fmt.Errorf("node %q: %w", name, err)
	case gateway.Mode == annotation.GatewayModeDisabled:
		return nil, fmt.Errorf("node %q has no gateway: its pods leave by the gateways of other nodes", name)
	}

	return n, nil
}

// checkOthers returns ErrLast (wrapped), with the consequences, if no other gateway could take over
// from n: for pods on nodes without a gateway, or for load balancers. Nodes that are drained or not
// ready do not count.
func checkOthers(nodes []corev1.Node, n *corev1.Node) error {
	var withoutGateway []string // nodes whose pods leave by egress gateways

	gateways, egressGateways := 0, 0 // others that could take over

	for i := range nodes {
		other := &nodes[i]
		if plan.UsesEgressGateways(other) {
			withoutGateway = append(withoutGateway, other.Name)
			continue
		}

		if other.Name == n.Name || annotation.Drained(other.Annotations) || !isReady(other) {
			continue
		}

		if _, err := annotation.ParseGateway(other.Annotations); err != nil {
			continue
		}

		gateways++

		if isEgressGateway(other) {
			egressGateways++
		}
	}

	switch {
	case len(withoutGateway) > 0 && egressGateways == 0 && isEgressGateway(n):
		return fmt.Errorf("%w: pods on %s have none of their own, and could not leave the cluster",
			ErrLast, strings.Join(shortenList(withoutGateway), ", "))
	case gateways == 0:
		return fmt.Errorf("%w: load balancers would be told that no node serves", ErrLast)
	}

	return nil
}

// isEgressGateway reports whether pods of other nodes can leave by the node's gateway. A gateway
// without NAT would get no replies for them.
func isEgressGateway(n *corev1.Node) bool {
	routable, err := annotation.ParseRoutablePods(n.Annotations)
	return plan.MayBeEgressGateway(n) && (err != nil || !routable)
}

// isReady reports whether the node is ready. A node without the condition Ready counts as ready.
func isReady(n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// remaining returns the nodes whose pods still leave by the gateway of that name. With back, it
// returns those that may use the gateway again but do not yet. A node that uses the maximum of
// other gateways need not use it.
func remaining(nodes []corev1.Node, name string, back bool) []string {
	var out []string

	for i := range nodes {
		n := &nodes[i]
		if !plan.UsesEgressGateways(n) {
			continue
		}

		gateways, err := annotation.ParseLeavesBy(n.Annotations)
		usesIt := slices.Contains(gateways, name)

		isDone := !usesIt
		if back {
			isDone = usesIt || len(gateways) >= plan.MaxEgressGateways
		}

		if err != nil || !isDone { // without the annotation, the routes are unknown
			out = append(out, n.Name)
		}
	}

	return out
}

// outcome describes the result for the operator.
func outcome(nodes []corev1.Node, back bool) string {
	var withoutGateway []string

	for i := range nodes {
		if plan.UsesEgressGateways(&nodes[i]) {
			withoutGateway = append(withoutGateway, nodes[i].Name)
		}
	}

	switch {
	case len(withoutGateway) == 0:
		return "no node is without a gateway, so there were no routes to change"
	case back:
		return "pods on " + strings.Join(shortenList(withoutGateway), ", ") + " may leave by it again"
	}

	return "pods on " + strings.Join(shortenList(withoutGateway), ", ") + " leave by other gateways"
}

// shortenList shortens a list for output.
func shortenList(names []string) []string {
	const most = 5
	if len(names) > most {
		return append(slices.Clone(names[:most]), fmt.Sprintf("and %d more", len(names)-most))
	}

	return names
}
