package reconcile

import (
	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// leavesBy is the annotation by which a node without a gateway is to tell whose its
// pods leave by, nil if it does. It is asked for before the node's rows are planned, and
// written after them: who is not named any more is in no route any more.
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
