package cniserver

import (
	"context"
	"errors"
	"sync"
)

var (
	errLaterSandbox = errors.New("superseded by a later sandbox of the same pod")
	errDeleted      = errors.New("the runtime requested deletion of the sandbox")
)

// attempts are the ADDs under way. Each pod has at most one, the latest: an earlier one could still
// write and take the port away from it.
type attempts struct {
	mu  sync.Mutex // guards all
	all map[string]*attempt
}

type attempt struct {
	container string
	cancel    context.CancelCauseFunc
	done      chan struct{}
}

func newAttempts() *attempts { return &attempts{all: map[string]*attempt{}} }

// begin cancels the pod's previous attempt and waits until it has cleaned up. end must be called.
func (a *attempts) begin(ctx context.Context, pod, container string) (own context.Context, end func()) {
	own, cancel := context.WithCancelCause(ctx)
	it := &attempt{container: container, cancel: cancel, done: make(chan struct{})}
	a.mu.Lock()
	before := a.all[pod]
	a.all[pod] = it
	a.mu.Unlock()
	if before != nil {
		before.cancel(errLaterSandbox)
		<-before.done
	}
	return own, func() {
		a.mu.Lock()
		if a.all[pod] == it {
			delete(a.all, pod)
		}
		a.mu.Unlock()
		cancel(nil)
		close(it.done)
	}
}

// stop cancels the attempt of the container.
func (a *attempts) stop(container string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, it := range a.all {
		if it.container == container {
			it.cancel(errDeleted)
		}
	}
}
