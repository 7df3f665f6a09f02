package cniserver

import (
	"context"
	"sync"
)

// locks serialise by key. A waiter gives up with its context.
type locks struct {
	mu   sync.Mutex // guards held
	held map[string]*lock
}

type lock struct {
	token chan struct{}
	users int
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
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, key)
		}
	}
	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
