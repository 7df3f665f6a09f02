package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
)

// ChassisRemover is what takes a node's chassis away once the node is gone.
type ChassisRemover interface {
	RemoveChassis(ctx context.Context, name string, f sb.Fence) error
}

// dropChassis removes the chassis of nodes that are gone, before their rows:
// these are what says which it is, also to the leader after a crash. A key whose
// chassis stays is left out, and keeps its rows for the next time.
func (w *worker) dropChassis(ctx context.Context, want map[plan.Key][]plan.Row) {
	if w.chassis == nil {
		return
	}
	for k := range want {
		if k.Kind != plan.KindNode || w.cluster.Node(k.Name) != nil {
			continue
		}
		name, err := w.db.Chassis(k)
		if err == nil && name != "" && !w.hasChassis(name) {
			err = w.removeChassis(ctx, name)
		}
		if err != nil {
			delete(want, k)
			w.fail(k, "", err)
		}
	}
}

func (w *worker) removeChassis(ctx context.Context, name string) error {
	return w.chassis.RemoveChassis(ctx, name, sb.Fence{Term: w.term.claim.Token(), Holds: w.term.check})
}

// hasChassis reports whether a node that exists has the chassis: one that was
// renamed, or joined again by another name.
func (l *Loop) hasChassis(name string) bool {
	for n := range plan.Objects[corev1.Node](&l.cluster, plan.KindNode) {
		if n.Annotations[annotation.ChassisID] == name {
			return true
		}
	}
	return false
}
