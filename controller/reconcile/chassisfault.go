package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/ovn-ebpf/ovn-ebpf/cluster/annotation"
	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
	"github.com/ovn-ebpf/ovn-ebpf/controller/sb"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// chassisCheckInterval is how often the leader compares the Nodes with their chassis. A fault is
// written when two checks in a row have found it.
const chassisCheckInterval = 15 * time.Second

// checkChassis compares each Node with its chassis in the Southbound database, and writes the
// difference to the Node, whose agent shows it. An agent cannot do this: it has no access to
// that database.
func (l *Loop) checkChassis(ctx context.Context, t *term) error {
	if l.chassis == nil {
		return nil
	}

	previous := map[string]string{} // faults by node
	logged := ""

	return loop.Every(ctx, chassisCheckInterval, func() {
		text := ""
		if err := l.writeChassisFaults(ctx, t, previous); err != nil && ctx.Err() == nil {
			text = err.Error()
		}

		if text != logged && text != "" {
			l.log.Warn("cannot compare nodes with their chassis", "error", text)
		}

		logged = text
	})
}

// writeChassisFaults checks all Nodes once. previous has the faults of the last check by node,
// and is updated.
func (l *Loop) writeChassisFaults(ctx context.Context, t *term, previous map[string]string) error {
	all, err := l.chassis.ListChassis(ctx)
	if err != nil {
		return err
	}

	current, patches := map[string]string{}, map[plan.Key]*patch{}

	for n := range plan.Objects[corev1.Node](&l.cluster, plan.KindNode) {
		fault := chassisFault(n, all)
		current[n.Name] = fault

		if fault != previous[n.Name] || fault == n.Annotations[annotation.ChassisFault] {
			continue
		}

		want := map[string]any{annotation.ChassisFault: fault}
		if fault == "" {
			want[annotation.ChassisFault] = nil
		}

		patches[plan.NodeKey(n.Name)] = newAnnotationPatch(&n.ObjectMeta, want)
	}

	clear(previous)
	maps.Copy(previous, current)

	errs := t.patchAll(ctx, patches, newSlots()) // the next check retries those that fail

	return errors.Join(slices.Collect(maps.Values(errs))...)
}

// chassisFault returns how a Node's chassis differs from what the node's agent has published, or
// "".
func chassisFault(n *corev1.Node, all map[string]sb.Chassis) string {
	id, address := plan.ChassisOf(n), n.Annotations[annotation.TunnelAddress]
	if id == "" || address == "" {
		return "" // the agent has not written them yet, or itself reports what is wrong
	}

	c, registered := all[id]
	switch {
	case !registered:
		return fmt.Sprintf("chassis %q of node %s is not in the Southbound database: other nodes cannot reach its pods; check that ovn-controller runs on the node and is connected",
			id, n.Name)
	case c.Hostname != n.Name:
		return fmt.Sprintf("chassis %q of node %s is registered by host %q: pods of one of the two are cut off; give each Open vSwitch a system-id of its own",
			id, n.Name, c.Hostname)
	case !slices.Contains(c.IPs, address):
		return fmt.Sprintf("chassis %q of node %s has the tunnel address %s in the Southbound database, not %s: other nodes cannot reach its pods; check that ovn-controller is connected",
			id, n.Name, strings.Join(c.IPs, ", "), address)
	}

	return ""
}
