package reconcile

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/ovn-ebpf/ovn-ebpf/controller/election"
	"github.com/ovn-ebpf/ovn-ebpf/loop"
)

// reasonUnready is the reason of the Event about a leader that is not ready.
const reasonUnready = "ControllerNotReady"

const (
	unreadyChecks = 5       // that must fail in a row; a restart of a database takes less time
	maxEventText  = 1 << 10 // bytes of an Event's message that the API server accepts
)

// reportUnready writes an Event when this replica leads and has not been ready for two durations
// of the lease, which is half a minute by default. The Event is about the election's Lease, or
// about namespace kube-system without an election.
func (l *Loop) reportUnready(ctx context.Context) error {
	lease := election.DefaultDuration
	if l.election != nil {
		lease = l.election.Duration()
	}

	failed := 0

	return loop.Every(ctx, 2*lease/unreadyChecks, func() {
		err := l.Ready()
		if err == nil || !l.Leading() {
			failed = 0
			return
		}

		failed++
		if failed == unreadyChecks { // not more often: one Event for each failure
			text := err.Error()
			l.log.Warn("not ready", "reason", text)
			l.events.Event(l.controllerObject(), corev1.EventTypeWarning, reasonUnready,
				text[:min(len(text), maxEventText)])
		}
	})
}

// controllerObject returns the object that stands for the controllers in Events.
func (l *Loop) controllerObject() runtime.Object {
	if l.election == nil {
		return &corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem},
		}
	}

	return l.election.Object()
}
