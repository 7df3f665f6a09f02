package cniserver

import (
	"context"
	"sync"
)

// locks serialises by key. A waiter gives up when its context ends.
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

func (l *locks) leave(key string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
