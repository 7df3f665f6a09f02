package reconcile

import (
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// leavesBy returns the annotation that names the gateways by which the pods of a node without a
// gateway leave, nil if it is right already. It is computed before the node's rows are planned and
// written after them: a gateway that is no longer named is in no route.
func leavesBy(c *plan.Cluster, k plan.Key) *patch {
	if k.Kind != plan.KindNode {
		return nil
	}
	n := c.Node(k.Name)
	if n == nil {
		return nil
	}
	has, told := n.Annotations[annotation.LeavesBy]
	if !plan.LeavesByOthers(n) {
		if !told {
			return nil
		}
		return &patch{of: &n.ObjectMeta, remove: []string{annotation.LeavesBy}}
	}
	want := annotation.FormatLeavesBy(plan.Exits(c, n))
	if has == want {
		return nil
	}
	return &patch{of: &n.ObjectMeta, annotations: map[string]string{annotation.LeavesBy: want}}
}
