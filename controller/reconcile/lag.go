package reconcile

import (
	"slices"
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// lag records since when owners have been waiting for the database to follow the cluster. An owner
// waits from its first event (begin) until the rows that were planned after this event are written
// (done). An event during a reconciliation (take to done) begins another wait, because it may be
// too late for it. An owner whose reconciliation failed keeps the time of its first event.
type lag struct {
	mu      sync.Mutex             // guards all below
	waiting map[plan.Key]time.Time // first event of owners that are in the queue
	taken   map[plan.Key]time.Time // first event of owners that are being reconciled, or are retried
	held    map[plan.Key]struct{}  // owners that a pace holds (hold to release): they do not wait
}

func newLag() lag {
	return lag{
		waiting: map[plan.Key]time.Time{},
		taken:   map[plan.Key]time.Time{},
		held:    map[plan.Key]struct{}{},
	}
}

// begin records that an event concerns the owner.
func (l *lag) begin(k plan.Key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if _, isHeld := l.held[k]; isHeld {
		return
	}

	if _, ok := l.waiting[k]; !ok {
		l.waiting[k] = now
	}
}

// hold records that a pace holds the owner.
func (l *lag) hold(k plan.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.waiting, k)
	delete(l.taken, k)

	l.held[k] = struct{}{}
}

// release records that no pace holds the owner any more.
func (l *lag) release(k plan.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()

	delete(l.held, k)
}

// heldOwners returns the number of owners of these kinds that a pace holds.
func (l *lag) heldOwners(kinds ...plan.Kind) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for k := range l.held {
		if slices.Contains(kinds, k.Kind) {
			n++
		}
	}

	return n
}

// take records that the owner's reconciliation begins.
func (l *lag) take(k plan.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()

	since, ok := l.waiting[k]
	if !ok {
		return
	}

	delete(l.waiting, k)

	if _, ok := l.taken[k]; !ok {
		l.taken[k] = since
	}
}

// done records the end of the owner's wait, and returns its beginning. It returns false if the
// owner did not wait: a full sync reconciles owners without an event.
func (l *lag) done(k plan.Key) (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	since, ok = l.taken[k]
	delete(l.taken, k)

	return since, ok
}

// oldest returns the owner that has waited longest, since when, and the number of waiting owners.
func (l *lag) oldest() (k plan.Key, since time.Time, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()

	for _, m := range []map[plan.Key]time.Time{l.waiting, l.taken} {
		for key, t := range m {
			if since.IsZero() || t.Before(since) {
				k, since = key, t
			}
		}
	}

	return k, since, len(l.waiting) + len(l.taken)
}

// reset forgets all owners.
func (l *lag) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()

	clear(l.waiting)
	clear(l.taken)
	clear(l.held)
}
