package reconcile

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
)

// Southbound has the chassis that ovn-controllers have registered.
type Southbound interface {
	RemoveChassis(ctx context.Context, name string, f sb.Fence) error
	ListChassis(ctx context.Context) (map[string]sb.Chassis, error)
}

// removeOldChassis removes the chassis of deleted nodes, and the former chassis of a node whose
// system-id has changed. ovn-controller cannot register a new chassis while an old one has the
// node's tunnel address. removeOldChassis must be called before the rows are written: only the
// old rows name the chassis, also for the next leader after a crash.
//
// A key whose chassis cannot be removed is deleted from want, and keeps its rows until the next
// attempt.
func (w *worker) removeOldChassis(ctx context.Context, want map[plan.Key][]plan.Row) {
	if w.chassis == nil {
		return
	}

	for k := range want {
		if k.Kind != plan.KindNode {
			continue
		}

		current := "" // of a deleted node
		if n := w.cluster.Node(k.Name); n != nil {
			current = plan.ChassisOf(n)
			if current == "" {
				continue // the node's agent has not written its chassis yet
			}
		}

		old, err := w.db.Chassis(k)
		if err == nil && old != "" && old != current && !w.isUsed(old) {
			err = w.removeChassis(ctx, old)
		}

		if err != nil {
			delete(want, k)
			w.fail(k, "", err)
		}
	}
}

// removeChassis removes a chassis while this term lasts.
func (w *worker) removeChassis(ctx context.Context, name string) error {
	return w.chassis.RemoveChassis(ctx, name, sb.Fence{Term: w.term.claim.Token(), Holds: w.term.holdInDatabase})
}

// isUsed reports whether an existing Node has the chassis. A renamed node has the same chassis
// under its new name.
func (l *Loop) isUsed(name string) bool {
	for n := range plan.Objects[corev1.Node](&l.cluster, plan.KindNode) {
		if n.Annotations[annotation.ChassisID] == name {
			return true
		}
	}

	return false
}

// chassisHolder returns the name of the node that may use the node's system-id, or "" if that is
// the node itself. Machines that are copied from one image may have the same system-id, and only
// one can be that chassis: the node whose rows have it in the Northbound database, or else the
// oldest.
func (w *worker) chassisHolder(n *corev1.Node) (string, error) {
	id := n.Annotations[annotation.ChassisID]
	if id == "" {
		return "", nil
	}

	var sharing, bound []*corev1.Node // with this system-id: in the annotation, and also in the rows

	for o := range plan.Objects[corev1.Node](&w.cluster, plan.KindNode) {
		if o.Annotations[annotation.ChassisID] == id {
			sharing = append(sharing, o)
		}
	}

	if len(sharing) < 2 {
		return "", nil
	}

	for _, o := range sharing {
		inRows, err := w.db.Chassis(plan.NodeKey(o.Name))
		if err != nil {
			return "", err
		}

		if inRows == id {
			bound = append(bound, o)
		}
	}

	if len(bound) == 0 {
		bound = sharing
	}

	holder := slices.MinFunc(bound, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	if holder.Name == n.Name {
		return "", nil
	}

	return holder.Name, nil
}
