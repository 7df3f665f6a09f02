package reconcile

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// allocationWrites writes allocations into the annotations of their objects, while the worker goes on:
// the API server may be slow. A key stays taken until the worker has finished it (finishAllocations),
// so it is not allocated again meanwhile.
type allocationWrites struct {
	term     *term
	finished func() // called after each batch, by its goroutine
	slots    *semaphore.Weighted

	running sync.WaitGroup
	mu      sync.Mutex // guards written
	written []writtenAllocation
}

// writtenAllocation is a patch that was sent, and its error.
type writtenAllocation struct {
	key   plan.Key
	patch *patch
	err   error
}

// start begins to write the patches.
func (a *allocationWrites) start(ctx context.Context, patches map[plan.Key]*patch) {
	if len(patches) == 0 {
		return
	}

	a.running.Go(func() {
		errs := a.term.patchAll(ctx, patches, a.slots)

		a.mu.Lock()

		for k, p := range patches {
			a.written = append(a.written, writtenAllocation{k, p, errs[k]})
		}

		a.mu.Unlock()
		a.finished()
	})
}

// take returns what was written since the last call.
func (a *allocationWrites) take() []writtenAllocation {
	a.mu.Lock()
	defer a.mu.Unlock()

	out := a.written
	a.written = nil

	return out
}

// wait waits until nothing is being written.
func (a *allocationWrites) wait() { a.running.Wait() }
