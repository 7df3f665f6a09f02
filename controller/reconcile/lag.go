package reconcile

import (
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// lag records since when owners have been waiting for the database to follow the cluster.
type lag struct {
	mu      sync.Mutex             // guards all below
	waiting map[plan.Key]time.Time // first event of owners that are in the queue
	taken   map[plan.Key]time.Time // first event of owners that are being reconciled, or are retried
}

func newLag() lag {
	return lag{waiting: map[plan.Key]time.Time{}, taken: map[plan.Key]time.Time{}}
}

// begin records that an event concerns the owner.
func (l *lag) begin(k plan.Key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if _, ok := l.waiting[k]; !ok {
		l.waiting[k] = now
	}
}

// take records that the owner's reconciliation begins. A later event is not part of it, so it
// waits separately.
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

// done records the end of the reconciliation and returns since when the owner had waited.
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
}
