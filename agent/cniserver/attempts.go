package cniserver

import (
	"context"
	"errors"
	"sync"
)

// Causes of a cancelled attempt.
var (
	errLaterSandbox = errors.New("superseded by a later sandbox of the same pod")
	errDeleted      = errors.New("the runtime requested deletion of the sandbox")
)

// attempts are the ADDs under way. Each pod has at most one, the latest. If the runtime creates a
// new sandbox for a pod while the ADD of an earlier sandbox runs, the earlier ADD could otherwise
// take the pod's port back.
type attempts struct {
	mu  sync.Mutex          // guards all
	all map[string]*attempt // by namespace/name of the pod
}

// attempt is an ADD under way.
type attempt struct {
	container string
	cancel    context.CancelCauseFunc
	done      chan struct{} // closed when the attempt has ended and cleaned up
}

func newAttempts() *attempts { return &attempts{all: map[string]*attempt{}} }

// begin cancels the pod's previous attempt and waits until it has cleaned up. own is cancelled by a
// later begin of the pod, or by stop of the container; its cause is errLaterSandbox or errDeleted.
// end must be called.
func (a *attempts) begin(ctx context.Context, pod, container string) (own context.Context, end func()) {
	own, cancel := context.WithCancelCause(ctx)
	current := &attempt{container: container, cancel: cancel, done: make(chan struct{})}

	a.mu.Lock()
	previous := a.all[pod]
	a.all[pod] = current
	a.mu.Unlock()

	if previous != nil {
		previous.cancel(errLaterSandbox)
		<-previous.done
	}

	return own, func() {
		a.mu.Lock()
		if a.all[pod] == current {
			delete(a.all, pod)
		}
		a.mu.Unlock()
		cancel(nil)
		close(current.done)
	}
}

// stop cancels the attempt of the container.
func (a *attempts) stop(container string) {
	a.mu.Lock()
	defer a.mu.Unlock()

	for _, other := range a.all {
		if other.container == container {
			other.cancel(errDeleted)
		}
	}
}
