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

// begin cancels the pod's previous attempt and waits until it has cleaned up. end must be called.
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

// locks serialises by key. A waiter gives up when its context ends.
type locks struct {
	mu   sync.Mutex       // guards held
	held map[string]*lock // by key, of keys with users
}

// lock is the lock of a key.
type lock struct {
	token chan struct{} // holds one value while the lock is taken
	users int           // the holder and the waiters
}

func newLocks() *locks { return &locks{held: map[string]*lock{}} }

// acquire returns the function that releases key.
func (l *locks) acquire(ctx context.Context, key string) (release func(), err error) {
	l.mu.Lock()

	k := l.held[key]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		l.held[key] = k
	}

	k.users++
	l.mu.Unlock()

	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; l.leave(key, k) }, nil
	case <-ctx.Done():
		l.leave(key, k)
		return nil, context.Cause(ctx)
	}
}

// try acquires key if it is free and has no waiters.
func (l *locks) try(key string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.held[key] != nil {
		return nil, false
	}

	k := &lock{token: make(chan struct{}, 1), users: 1}
	k.token <- struct{}{}

	l.held[key] = k

	return func() {
		<-k.token
		l.leave(key, k)
	}, true
}

// leave ends the use of a lock by a former holder or waiter.
func (l *locks) leave(key string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
