package reconcile

import (
	"sync"
	"time"

	"github.com/ovn-ebpf/ovn-ebpf/controller/plan"
)

// lag knows since when owners wait for the database to follow the cluster.
type lag struct {
	mu      sync.Mutex             // guards all below
	waiting map[plan.Key]time.Time // the first event since the owner was last taken up
	taken   map[plan.Key]time.Time // the first event of what is under way, or is tried again
}

func newLag() lag {
	return lag{waiting: map[plan.Key]time.Time{}, taken: map[plan.Key]time.Time{}}
}

// begin notes that an event made the owner wait.
func (l *lag) begin(k plan.Key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.waiting[k]; !ok {
		l.waiting[k] = now
	}
}

// take notes that the owner is taken up: what comes from now on is another event.
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

// done notes that what was taken up is over, and returns since when it waited.
func (l *lag) done(k plan.Key) (since time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, ok = l.taken[k]
	delete(l.taken, k)
	return since, ok
}

// oldest returns who has waited longest, since when, and how many wait.
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

func (l *lag) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.waiting)
	clear(l.taken)
}
