package cniserver

import (
	"context"
	"sync"
)

// locks is a set of mutexes by key. Unlike with sync.Mutex, a waiter gives up when its context
// ends. A lock exists only while it has users.
type locks struct {
	mu   sync.Mutex       // guards held, and users of each lock
	held map[string]*lock // by key
}

// lock is the lock of a key.
type lock struct {
	token chan struct{} // has room for one value, which is in it while the lock is taken
	users int           // the holder and the waiters
}

func newLocks() *locks { return &locks{held: map[string]*lock{}} }

// acquire waits until key is free, and takes it. If ctx ends before, it returns the cause.
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
		return func() { l.free(key, k) }, nil
	case <-ctx.Done():
		l.leave(key, k)
		return nil, context.Cause(ctx)
	}
}

// try takes key if it is free and has no waiters.
func (l *locks) try(key string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if l.held[key] != nil {
		return nil, false
	}

	k := &lock{token: make(chan struct{}, 1), users: 1}
	k.token <- struct{}{}

	l.held[key] = k

	return func() { l.free(key, k) }, true
}

// free releases a lock of its holder.
func (l *locks) free(key string, k *lock) {
	<-k.token
	l.leave(key, k)
}

// leave ends the use of a lock by a former holder or waiter. The last one deletes the lock.
func (l *locks) leave(key string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if k.users--; k.users == 0 {
		delete(l.held, key)
	}
}
