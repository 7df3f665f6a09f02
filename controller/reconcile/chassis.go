package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
)

// ChassisRemover removes the chassis of deleted nodes.
type ChassisRemover interface {
	RemoveChassis(ctx context.Context, name string, f sb.Fence) error
}

// dropChassis removes the chassis of deleted nodes before their rows. The rows name the chassis,
// also for the next leader after a crash. A key whose chassis cannot be removed is left out and
// keeps its rows until the next attempt.
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

// hasChassis reports whether a node that exists has the chassis. A renamed node has it under its
// new name.
func (l *Loop) hasChassis(name string) bool {
	for n := range plan.Objects[corev1.Node](&l.cluster, plan.KindNode) {
		if n.Annotations[annotation.ChassisID] == name {
			return true
		}
	}
	return false
}
